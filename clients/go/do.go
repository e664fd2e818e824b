// Runs work under a lock, and never reports success for work that outlived it.

package tenure

import (
	"context"
	"errors"
)

// Do waits for a lock, runs work under it, and releases it when work has returned.
//
// The context of the work ends with ctx, and before the deadline if the lock is lost; [context.Cause] is then the
// [*LostError]. Do returns nil only if the lock was held until the work had ended. Work that returns after its lock was
// lost is answered with the loss, joined with the error that the work returned, if any: it may have overlapped with the
// next holder's. Other errors of the work come through as they are.
//
// Do waits for work to return, however long that takes after the loss. It must not leave goroutines behind that go on
// with the work.
func (c *Client) Do(
	ctx context.Context, name string, work func(ctx context.Context, guard *Guard) error, options ...LockOption,
) error {
	guard, err := c.Lock(ctx, name, options...)
	if err != nil {
		return err
	}
	return guard.Do(ctx, work)
}

// Do runs work under the guard, and releases the guard when work has returned; see [Client.Do].
func (g *Guard) Do(ctx context.Context, work func(ctx context.Context, guard *Guard) error) error {
	finished := false
	defer func() {
		if !finished {
			// The work panicked, or ended its goroutine: it has stopped.
			g.once.Do(func() { g.hold.finishInBackground(ctx) })
		}
	}()
	merged, end := g.workContext(ctx)
	defer end()
	err := g.Check()
	if err == nil {
		err = work(merged, g)
		if lost := g.Check(); lost != nil && !errors.Is(lost, &LostError{Cause: CauseReleased}) {
			err = joined(lost, err)
		}
	}
	finished = true
	// The lock is released also if the caller's context has ended, within the client's timeout.
	released := g.Release(context.WithoutCancel(ctx))
	switch {
	case released == nil:
	case errors.Is(released, ErrLost):
		err = joined(released, err)
	default:
		g.hold.warn(released)
	}
	return err
}

// joined is the loss, and the error of the work if that does not report the same loss already.
func joined(lost, err error) error {
	var known, of *LostError
	switch {
	case err == nil:
		return lost
	case errors.As(err, &known) && errors.As(lost, &of) && known.Token == of.Token:
		return err
	}
	return errors.Join(lost, err)
}

// workContext returns a context that ends with ctx, and with the loss of the lock.
func (g *Guard) workContext(ctx context.Context) (context.Context, func()) {
	merged, cancel := context.WithCancelCause(ctx)
	stop := g.hold.signal.also(cancel)
	return &guardContext{Context: merged, hold: g.hold}, func() {
		stop()
		cancel(context.Canceled)
	}
}
