// Queues requests of one process for the same lock under the same lease, before they reach the cluster.

package tenure

import "context"

// A localQueue is the local queue of one lock: one place, held until the lock is released.
type localQueue struct {
	place chan struct{}
	users int
}

// enterLocalQueue waits for the local queue of a lock.
func (h *heldLease) enterLocalQueue(ctx context.Context, lock string, wait bool) error {
	h.mu.Lock()
	it := h.localQueues[lock]
	if it == nil {
		it = &localQueue{place: make(chan struct{}, 1)}
		h.localQueues[lock] = it
	}
	it.users++
	h.mu.Unlock()
	select {
	case it.place <- struct{}{}:
		return nil
	default:
	}
	failed := error(&RefusedError{Reason: "HELD", Message: "lock `" + lock + "` is held by this lease", Lock: lock})
	if wait {
		select {
		case it.place <- struct{}{}:
			return nil
		case <-h.lost.ctx.Done():
			failed = context.Cause(h.lost.ctx)
		case <-h.client.closed:
			failed = ErrClosed
		case <-ctx.Done():
			failed = ctx.Err()
		}
	}
	h.leaveLocalQueue(lock)
	return failed
}

// freeLocalQueue lets the next request of this process for the lock go on.
func (h *heldLease) freeLocalQueue(lock string) {
	h.mu.Lock()
	it := h.localQueues[lock]
	h.mu.Unlock()
	if it != nil {
		<-it.place
		h.leaveLocalQueue(lock)
	}
}

func (h *heldLease) leaveLocalQueue(lock string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if it := h.localQueues[lock]; it != nil {
		if it.users--; it.users == 0 {
			delete(h.localQueues, lock)
		}
	}
}
