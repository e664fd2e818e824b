// Asks for locks under a new lease of their own.

package tenure

import (
	"context"
	"errors"
)

// Lock waits in the queue for a lock, under a new lease of its own. The context cancels the waiting only: what may
// still be granted after that is given back, and a guard that was returned is not affected.
func (c *Client) Lock(ctx context.Context, name string, options ...LockOption) (*Guard, error) {
	return c.LockAll(ctx, []string{name}, options...)
}

// LockAll waits for several locks, all or none, under one new lease. The guard stands for all of them.
func (c *Client) LockAll(ctx context.Context, names []string, options ...LockOption) (*Guard, error) {
	return c.choose(ctx, allOf, names, options)
}

// LockAny waits for any one of several locks under a new lease: the first, in the order of names, that is free. Until
// then the request waits in the queues of all of them and keeps its turn in each. [Guard.Name] tells which one it is.
// Needs feature level 13.
func (c *Client) LockAny(ctx context.Context, names []string, options ...LockOption) (*Guard, error) {
	return c.choose(ctx, anyOf, names, options)
}

// Pool waits for any slot of a pool under a new lease. The slots of "gpu/" are the semaphores below this prefix whose
// sizes an operator has set with [Client.Resize]. The request also waits for slots that are added later. [Guard.Name]
// tells which slot it is. The request is refused with POOL_EMPTY if there is none, or none as large as [Take] says.
// Needs feature level 13.
func (c *Client) Pool(ctx context.Context, prefix string, options ...LockOption) (*Guard, error) {
	return c.choose(ctx, ofPool, []string{prefix}, options)
}

// choose acquires under a new lease.
func (c *Client) choose(ctx context.Context, choice choice, names []string, options []LockOption) (*Guard, error) {
	chosen, err := lockOptionsOf(choice, names, options)
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
