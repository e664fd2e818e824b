// Queues requests of one process for the same lock under the same lease, before they reach the cluster.

package tenure

import "context"

// A turn is the local queue of one lock: one place, held until the lock is released.
type turn struct {
	place chan struct{}
	users int
}

// takeTurn waits for the local queue of a lock.
func (h *heldLease) takeTurn(ctx context.Context, lock string, wait bool) error {
	h.mu.Lock()
	it := h.turns[lock]
	if it == nil {
		it = &turn{place: make(chan struct{}, 1)}
		h.turns[lock] = it
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
	h.leaveTurn(lock)
	return failed
}

// giveTurn lets the next request of this process for the lock go on.
func (h *heldLease) giveTurn(lock string) {
	h.mu.Lock()
	it := h.turns[lock]
	h.mu.Unlock()
	if it != nil {
		<-it.place
		h.leaveTurn(lock)
	}
}

func (h *heldLease) leaveTurn(lock string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if it := h.turns[lock]; it != nil {
		if it.users--; it.users == 0 {
			delete(h.turns, lock)
		}
	}
}
