// Changes who holds a lock and how: upgrades a shared hold, gives a hold to a client that waits, and reports progress.

package tenure

import (
	"context"
	"errors"
	"time"
)

// Upgrade turns a shared hold into an exclusive one, under a new token, once there is no other holder. The lock stays
// held all the time: shared while this waits, before all others in the queue, and shared still if the wait is over
// first. If another holder waits for the same already, this one is refused with the reason DEADLOCK: release the lock
// then, so that the other one can go on. A hold that is exclusive already stays as it is. Needs feature level 10.
//
// Of the options, [Wait], [NoWait], [Independent] and [OnQueued] apply. If ctx ends first, Upgrade leaves the queue
// before it returns. If it fails and the outcome cannot be learned, the guard is lost: stop the work and release it.
func (g *Guard) Upgrade(ctx context.Context, options ...LockOption) error {
	h := g.hold
	lock, err := h.onlyLock()
	if err != nil {
		return err
	}
	chosen, err := lockOptionsOf(allOf, []string{lock.Name}, options)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return cancelled(ctx, EffectNone)
	}
	chosen.upgrade = true
	w := h.lease.client.waiting(h.lease, []string{lock.Name}, chosen)
	granted, err := w.stand(ctx, nil)
	if err != nil {
		if w.seq != nil {
			w.seq.done()
		}
		if errors.Is(err, ErrLost) {
			h.doubt()
			return err
		}
		if !w.mayStand(err) {
			return err
		}
		// The answer tells whether the upgrade came first: then the token is another one.
		if granted, err = h.leaveUpgrade(ctx, lock, err); err != nil {
			return err
		}
	}
	for _, it := range granted.locks {
		if it.Name == lock.Name && it.Token != lock.Token {
			h.regrant(0, lock.Token, it.Token, granted.revision)
		}
	}
	return nil
}

// leaveUpgrade leaves the queue in which the lease waits for an upgrade. It returns the hold if it was upgraded before,
// and otherwise the error with which the wait ended.
func (h *hold) leaveUpgrade(ctx context.Context, old GrantedLock, ended error) (*grantedAt, error) {
	answer, err := h.lease.numbered(
		context.WithoutCancel(ctx), wireRequest{Leave: &wireWhich{Lock: old.Name, Lease: decimal(h.lease.id)}},
	)
	switch {
	case err != nil && errors.As(err, new(*RefusedError)):
		// The lease holds nothing of the lock any more.
		h.doubt()
		return nil, lostError(loss{cause: CauseGone}, old.Name, old.Token)
	case err != nil:
		h.doubt()
		return nil, &UnknownError{}
	case answer.Left == nil:
		h.doubt()
		return nil, strange()
	}
	for _, it := range answer.Left.Held {
		if it.Lock == old.Name && Token(it.Token) != old.Token {
			lock := GrantedLock{Name: old.Name, Token: Token(it.Token)}
			return &grantedAt{locks: []GrantedLock{lock}, revision: uint64(answer.Revision)}, nil
		}
	}
	return nil, ended
}

// HandOn gives the hold to the client of another lease, which must wait for this lock alone, in the same mode. It gets
// the lock at once, ahead of all others, under the token that this returns; the lock is never free in between. The
// caller must have stopped its work. Needs feature level 10.
//
// If that lease does not wait, this is refused with the reason NOT_WAITING, and the lock is held as before. If the
// outcome is unknown, the guard is lost: release it.
func (g *Guard) HandOn(ctx context.Context, to LeaseID) (Token, error) {
	h := g.hold
	lock, err := h.onlyLock()
	if err != nil {
		return 0, err
	}
	handOn := &wireHandOn{
		wireHold: wireHold{Lock: lock.Name, Lease: decimal(h.lease.id), Token: decimal(lock.Token)}, To: decimal(to),
	}
	answer, err := h.lease.numbered(ctx, wireRequest{HandOn: handOn})
	if err == nil && answer.HandedOn == nil {
		err = strange()
	}
	if err != nil {
		if EffectOf(err) == EffectUnknown {
			h.doubt()
		}
		return 0, err
	}
	g.once.Do(func() { h.handedOn(ctx) })
	return Token(answer.HandedOn.Token), nil
}

// Progress reports how far the work has come, for a lock that was taken with [ProgressWithin]. Only a number that is
// larger than all before counts as progress; before the first report it is 0. It returns in how much time a larger
// number is due, and false if none was promised. One report counts for all locks of the guard.
func (g *Guard) Progress(ctx context.Context, number uint64) (left time.Duration, promised bool, err error) {
	lock := g.Locks()[0]
	progress := &wireProgress{
		wireHold: wireHold{Lock: lock.Name, Lease: decimal(g.hold.lease.id), Token: decimal(lock.Token)},
		Number:   decimal(number),
	}
	// The number itself makes a repetition harmless.
	answer, err := g.hold.lease.client.call(ctx, wireRequest{Progress: progress}, identity{})
	switch {
	case err != nil:
		return 0, false, err
	case answer.Progressed == nil:
		return 0, false, strange()
	case answer.Progressed.LeftMs == nil:
		return 0, false, nil
	}
	return milliseconds(*answer.Progressed.LeftMs), true, nil
}

// onlyLock checks that there is one guard of the hold, that it stands for one lock, and that it is not lost.
func (h *hold) onlyLock() (GrantedLock, error) {
	if lost := h.check(); lost != nil {
		return GrantedLock{}, lost
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.guards > 1:
		return GrantedLock{}, invalid("GUARD_SHARED", "there are other guards of the same hold")
	case len(h.locks) != 1:
		return GrantedLock{}, invalid("SEVERAL_LOCKS", "the guard stands for several locks")
	}
	return h.locks[0], nil
}

// regrant moves one lock of the hold to another token.
func (h *hold) regrant(at int, old, new Token, revision uint64) {
	h.mu.Lock()
	h.locks[at].Token = new
	h.mu.Unlock()
	h.lease.listen(uint64(new), h.signal)
	h.lease.with(func(state *leaseState) { state.regranted(uint64(old), uint64(new), revision) })
	h.lease.unlisten(uint64(old))
}

// doubt: it is not certain how the lock is held. The guard is lost, and its release gives back what there is.
func (h *hold) doubt() {
	h.mu.Lock()
	h.inDoubt = true
	locks := h.locks
	h.mu.Unlock()
	h.lease.with(func(state *leaseState) {
		for _, lock := range locks {
			state.taken(uint64(lock.Token), loss{cause: CauseGone})
		}
	})
}

// giveBackWhatThereIs leaves the queue of an upgrade, and releases the lock under whichever token the lease holds it.
func (h *hold) giveBackWhatThereIs(ctx context.Context) error {
	lock := h.locks[0]
	tokens := []uint64{uint64(lock.Token)}
	answer, err := h.lease.numbered(ctx, wireRequest{Leave: &wireWhich{Lock: lock.Name, Lease: decimal(h.lease.id)}})
	switch {
	case err != nil && !errors.As(err, new(*RefusedError)):
		return err
	case err == nil && answer.Left != nil && len(answer.Left.Held) > 0:
		tokens = tokens[:0]
		for _, it := range answer.Left.Held {
			tokens = append(tokens, uint64(it.Token))
		}
	}
	for _, token := range tokens {
		// A loss says that it is not held under this token.
		if err := h.lease.release(ctx, lock.Name, token); err != nil && !errors.Is(err, ErrLost) {
			return err
		}
	}
	return nil
}

// handedOn ends the hold: another client has the lock. There is nothing to release, except a lease of the hold's own.
func (h *hold) handedOn(ctx context.Context) {
	h.mu.Lock()
	h.guards, h.released = 0, true
	lock := h.locks[0]
	h.mu.Unlock()
	now := h.lease.client.clock.read()
	h.lease.withAt(now, func(state *leaseState) {
		if _, held := state.givenBack(uint64(lock.Token), now); !held {
			state.stopped(uint64(lock.Token))
		}
	})
	h.lease.unlisten(uint64(lock.Token))
	h.signal.fire(lostError(loss{cause: CauseReleased}, lock.Name, lock.Token))
	if h.own {
		h.lease.revokeInBackground(ctx)
	} else {
		h.lease.freeLocalQueue(lock.Name)
	}
	h.lease.client.report()
}
