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
