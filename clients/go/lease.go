// Defines the lease of a client: several locks can be held under it.

package tenure

import (
	"context"
	"time"
)

// A Lease is the client's standing in the cluster for a time. Locks that are held under one lease are lost together.
type Lease struct {
	held *heldLease
}

// Lease requests a lease that several locks can be held under. Zero is the client's ttl. The client renews it until
// [Lease.Release].
func (c *Client) Lease(ctx context.Context, ttl time.Duration) (*Lease, error) {
	if c.isClosing() {
		return nil, ErrClosed
	}
	timing, err := c.config.leaseTiming(lockOptions{ttl: ttl})
	if err != nil {
		return nil, err
	}
	held, err := c.grantLease(ctx, timing)
	if err != nil {
		return nil, err
	}
	return &Lease{held: held}, nil
}

// Lock waits for a lock under the lease. A second request of this process for the same lock waits until the first is
// released; code that needs the lock again further down uses [Guard.Reenter].
func (l *Lease) Lock(ctx context.Context, name string, options ...LockOption) (*Guard, error) {
	return l.LockAll(ctx, []string{name}, options...)
}

// LockAll waits for several locks under the lease, all or none.
func (l *Lease) LockAll(ctx context.Context, names []string, options ...LockOption) (*Guard, error) {
	return l.choose(ctx, allOf, names, options)
}

// LockAny waits for any one of several locks under the lease; see [Client.LockAny]. A second request of this process for
// one of these locks waits for the first guard.
func (l *Lease) LockAny(ctx context.Context, names []string, options ...LockOption) (*Guard, error) {
	return l.choose(ctx, anyOf, names, options)
}

func (l *Lease) choose(ctx context.Context, choice choice, names []string, options []LockOption) (*Guard, error) {
	chosen, err := lockOptionsOf(choice, names, options)
	if err != nil {
		return nil, err
	}
	if lost := l.held.check(); lost != nil {
		return nil, lostError(*lost, "", 0)
	}
	return l.held.client.acquire(ctx, l.held, names, chosen)
}

// TryLock asks for a lock without queueing. It returns false, and no error, if another client holds it.
func (l *Lease) TryLock(ctx context.Context, name string, options ...LockOption) (*Guard, bool, error) {
	return tried(l.Lock(ctx, name, append(options[:len(options):len(options)], NoWait())...))
}

// Do waits for a lock under the lease and runs work under it; see [Client.Do].
func (l *Lease) Do(
	ctx context.Context, name string, work func(ctx context.Context, guard *Guard) error, options ...LockOption,
) error {
	guard, err := l.Lock(ctx, name, options...)
	if err != nil {
		return err
	}
	return guard.Do(ctx, work)
}

// ID returns the id of the lease.
func (l *Lease) ID() LeaseID { return l.held.id }

// Check returns nil if the lease can be relied on at this moment, and a [*LostError] if not.
func (l *Lease) Check() error {
	if lost := l.held.check(); lost != nil {
		return lostError(*lost, "", 0)
	}
	return nil
}

// Standing returns whether the lease is valid, overdue or lost at this moment.
func (l *Lease) Standing() Standing {
	standing, now := Valid, l.held.client.clock.read()
	l.held.withAt(now, func(state *leaseState) { standing = state.standing(now) })
	return standing
}

// Context returns a context that is cancelled when the lease is lost; [context.Cause] is the [*LostError].
func (l *Lease) Context() context.Context {
	return &leaseContext{Context: l.held.lost.ctx, held: l.held}
}

// A leaseContext is a context that ends when a lease is lost, by the clock at each use.
type leaseContext struct {
	context.Context
	held *heldLease
}

// Err returns why the context has ended.
func (c *leaseContext) Err() error {
	_ = c.held.check()
	return c.Context.Err()
}

// Release ends the lease. It fails if locks are held under it: release their guards first. A lease that has ended
// before is no error.
func (l *Lease) Release(ctx context.Context) error {
	if locks := l.held.inUse(); len(locks) > 0 {
		return &StillHeldError{Locks: locks}
	}
	err := l.held.revoke(ctx)
	if _, lost := err.(*LostError); lost {
		return nil
	}
	return err
}
