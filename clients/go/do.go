// Runs work under a lock, and never reports success for work that outlived it.

package tenure

import (
	"context"
	"errors"
	"sync"
)

// Lock waits in the queue for a lock, under a new lease of its own. The context cancels the waiting only: what may
// still be granted after that is given back, and a guard that was returned is not affected.
func (c *Client) Lock(ctx context.Context, name string, options ...LockOption) (*Guard, error) {
	return c.LockAll(ctx, []string{name}, options...)
}

// LockAll waits for several locks, all or none, under one new lease. The guard stands for all of them.
func (c *Client) LockAll(ctx context.Context, names []string, options ...LockOption) (*Guard, error) {
	chosen, err := lockOptionsOf(names, options)
	if err != nil {
		return nil, err
	}
	return c.acquire(ctx, nil, names, chosen)
}

// TryLock asks for a lock without queueing. It returns false, and no error, if another client holds it.
func (c *Client) TryLock(ctx context.Context, name string, options ...LockOption) (*Guard, bool, error) {
	return tried(c.Lock(ctx, name, append(options[:len(options):len(options)], NoWait())...))
}

func tried(guard *Guard, err error) (*Guard, bool, error) {
	if errors.Is(err, ErrHeld) {
		return nil, false, nil
	}
	return guard, err == nil, err
}

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
	return guard.do(ctx, work)
}

// do runs work and releases the guard.
func (g *Guard) do(ctx context.Context, work func(ctx context.Context, guard *Guard) error) error {
	finished := false
	defer func() {
		if !finished {
			// The work panicked, or ended its goroutine: it has stopped.
			g.once.Do(g.hold.finishInBackground)
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

// A Locker is a lock as a [sync.Locker], for code that takes one. Prefer [Client.Do]: a sync.Locker cannot tell its user
// that the lock is lost, so call [Locker.Check] before every step that must not run late.
type Locker struct {
	client  *Client
	name    string
	options []LockOption

	mu    sync.Mutex
	guard *Guard
}

var _ sync.Locker = (*Locker)(nil)

// Locker returns the lock of this name as a [sync.Locker].
func (c *Client) Locker(name string, options ...LockOption) *Locker {
	return &Locker{client: c, name: name, options: options}
}

// Lock waits until the lock is held, and asks again if no member can be reached. It panics if the cluster refuses the
// request for good, or if the client is closed: a sync.Locker has no other way to say so.
func (l *Locker) Lock() {
	pause := dialPauseMin
	for {
		guard, err := l.client.Lock(context.Background(), l.name, l.options...)
		if err == nil {
			l.mu.Lock()
			l.guard = guard
			l.mu.Unlock()
			return
		}
		if !Retryable(err) && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrLost) {
			panic(err)
		}
		sleep(context.Background(), jittered(pause))
		pause = min(pause*2, dialPauseMax)
	}
}

// Unlock releases the lock. The caller must have stopped its work. It panics if the lock was not locked, and returns
// quietly if it was lost meanwhile; the client logs that.
func (l *Locker) Unlock() {
	l.mu.Lock()
	guard := l.guard
	l.guard = nil
	l.mu.Unlock()
	if guard == nil {
		panic("tenure: unlock of unlocked Locker")
	}
	if err := guard.Release(context.Background()); err != nil && !errors.Is(err, ErrLost) {
		guard.hold.warn(err)
	}
}

// Guard returns the guard of the held lock, or nil.
func (l *Locker) Guard() *Guard {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.guard
}

// Check returns nil if the lock is held and can be relied on at this moment.
func (l *Locker) Check() error {
	if guard := l.Guard(); guard != nil {
		return guard.Check()
	}
	return lostError(loss{cause: CauseReleased}, l.name, 0)
}
