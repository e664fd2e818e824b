// Implements the guard: the value that stands for a held lock, stops work in time and releases the lock.

package tenure

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// A GrantedLock is one lock of a guard.
type GrantedLock struct {
	// Name is the lock's name, and Token the fencing token of the grant.
	Name  string
	Token Token
	// Slot is the slot of a semaphore, counted from 0; nil for a plain lock.
	Slot *int
}

// A Guard is a held lock, or several that were requested together.
//
// While the guard exists, the client renews its lease. A lost lock stays lost: [Guard.Check], [Guard.Context] and
// [Client.Do] report the loss before another client may start. [Guard.Release] declares that the work has stopped; a
// guard that is never released is renewed until the process ends or the client is closed.
//
// All methods are safe for concurrent use.
type Guard struct {
	hold *hold
	once sync.Once
}

// A hold is what guards of the same grant share.
type hold struct {
	lease *heldLease
	// own: the lease exists for this hold alone.
	own      bool
	revision Revision
	signal   *lossSignal

	mu     sync.Mutex
	locks  []GrantedLock
	guards int
	// released: the last guard was released.
	released bool
	// inDoubt: it is not certain how the lock is held.
	inDoubt bool
}

// newGuard creates a guard of what was granted, if the lease can be relied on at this moment. Otherwise it gives back
// what was granted: no work has begun.
func newGuard(ctx context.Context, lease *heldLease, own bool, granted grantedAt) (*Guard, error) {
	signal := newLossSignal(ctx)
	// Subscribe before the grant is recorded, so that no loss is missed.
	for _, lock := range granted.locks {
		lease.listen(uint64(lock.Token), signal)
	}
	now := lease.client.clock.read()
	var failed error
	lease.withAt(now, func(state *leaseState) {
		for _, lock := range granted.locks {
			if lost := state.granted(lock.Name, uint64(lock.Token), granted.revision, now); lost != nil && failed == nil {
				failed = lostError(*lost, lock.Name, lock.Token)
			}
		}
	})
	held := &hold{
		lease: lease, own: own, revision: Revision(granted.revision), signal: signal, locks: granted.locks, guards: 1,
	}
	guard := &Guard{hold: held}
	if failed == nil {
		return guard, nil
	}
	held.finishInBackground(ctx)
	if lease.client.isClosing() {
		return nil, ErrClosed
	}
	return nil, failed
}

// Token returns the fencing token. Pass it to the resource that the lock protects. For several locks, this is the token
// of the first by name; each slot of a semaphore has its own in [Guard.Locks].
func (g *Guard) Token() Token { return g.Locks()[0].Token }

// Name returns the lock's name. For several locks, this is the first by name.
func (g *Guard) Name() string { return g.Locks()[0].Name }

// Slot returns the slot of a semaphore, counted from 0, and whether the lock has slots.
func (g *Guard) Slot() (int, bool) {
	slot := g.Locks()[0].Slot
	if slot == nil {
		return 0, false
	}
	return *slot, true
}

// Locks returns every lock that the guard stands for, in the order of their names.
func (g *Guard) Locks() []GrantedLock {
	g.hold.mu.Lock()
	defer g.hold.mu.Unlock()
	return append([]GrantedLock(nil), g.hold.locks...)
}

// Lease returns the id of the lease that the lock is held under.
func (g *Guard) Lease() LeaseID { return g.hold.lease.id }

// Revision returns a revision at which the lock was held: that of the grant, unless the answer was lost and the client
// had to ask again. A watch of the lock from here on tells everything that happened to it since.
func (g *Guard) Revision() Revision { return g.hold.revision }

// Check returns nil if the lock can be relied on at this moment, and a [*LostError] if not. It compares the clock and
// sends nothing: call it before every step that must not run late.
func (g *Guard) Check() error {
	if lost := g.hold.check(); lost != nil {
		return lost
	}
	return nil
}

// check returns the loss by the clock of this moment.
func (h *hold) check() *LostError {
	h.mu.Lock()
	locks := h.locks
	h.mu.Unlock()
	return h.lease.checkGrants(locks, h.lease.client.clock.read())
}

// Standing returns whether the lock is valid, overdue or lost at this moment.
func (g *Guard) Standing() Standing {
	if g.hold.check() != nil {
		return Lost
	}
	lease, standing := g.hold.lease, Valid
	now := lease.client.clock.read()
	lease.withAt(now, func(state *leaseState) { standing = state.standing(now) })
	return standing
}

// Standings returns a channel with the current standing and every later one. A standing that was not read in time is
// replaced by a newer one. After [Lost] nothing more comes.
func (g *Guard) Standings() <-chan Standing {
	to := g.hold.signal.subscribe(g.Standing())
	// What changed between the reading and the subscription is told again.
	g.hold.signal.stands(g.Standing())
	return to
}

// Context returns a context that is cancelled when the lock is lost, before the cluster can grant it to another client;
// [context.Cause] is the [*LostError]. It is cancelled within milliseconds of the loss, and its Err compares the clock,
// so that it is right even if nothing has run for a while. It has the values of the context that the lock was acquired
// with, and does not end with that context. Releasing the guard cancels it, too.
func (g *Guard) Context() context.Context {
	return &guardContext{Context: g.hold.signal.ctx, hold: g.hold}
}

// A guardContext is a context that ends when a lock is lost, by the clock at each use.
//
// Because the embedded context is one of the standard library, contexts that are derived from it are cancelled without
// a goroutine of their own.
type guardContext struct {
	context.Context
	hold *hold
}

// Err returns why the context has ended.
func (c *guardContext) Err() error {
	// If the time is over, this cancels the embedded context first.
	_ = c.hold.check()
	return c.Context.Err()
}

// Lost waits until the lock is lost or the context ends, and returns the loss, or else the error of the context.
func (g *Guard) Lost(ctx context.Context) error {
	select {
	case <-g.hold.signal.ctx.Done():
		return context.Cause(g.hold.signal.ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reenter returns another guard of the same hold, for a callee that takes the lock again, without a request to the
// cluster. The client releases the lock when the last of these guards is released. Nothing is ever held twice without
// it: a second [Lease.Lock] of a held lock waits.
func (g *Guard) Reenter() (*Guard, error) {
	if lost := g.hold.check(); lost != nil {
		return nil, lost
	}
	g.hold.mu.Lock()
	defer g.hold.mu.Unlock()
	if g.hold.released {
		return nil, lostError(loss{cause: CauseReleased}, g.hold.locks[0].Name, g.hold.locks[0].Token)
	}
	g.hold.guards++
	return &Guard{hold: g.hold}, nil
}

// Downgrade turns an exclusive hold into a shared one, without a gap. The token changes. It fails while other guards of
// the same hold exist, which have the old token.
func (g *Guard) Downgrade(ctx context.Context) error {
	h := g.hold
	h.mu.Lock()
	if h.guards > 1 {
		h.mu.Unlock()
		return invalid("GUARD_SHARED", "there are other guards of the same hold")
	}
	count := len(h.locks)
	h.mu.Unlock()
	for at := range count {
		lock := g.Locks()[at]
		hold := &wireHold{Lock: lock.Name, Lease: decimal(h.lease.id), Token: decimal(lock.Token)}
		answer, err := h.lease.numbered(ctx, wireRequest{Downgrade: hold})
		if err != nil {
			return err
		}
		if answer.Downgraded == nil {
			return strange()
		}
		h.regrant(at, lock.Token, Token(answer.Downgraded.Token), uint64(answer.Revision))
	}
	return nil
}

// Update replaces the metadata of the grant, which other clients can read.
func (g *Guard) Update(ctx context.Context, metadata []byte) error {
	lock := g.Locks()[0]
	update := &wireUpdate{
		wireHold: wireHold{Lock: lock.Name, Lease: decimal(g.hold.lease.id), Token: decimal(lock.Token)},
	}
	update.Metadata, update.MetadataBase64 = textOrBase64(metadata)
	answer, err := g.hold.lease.numbered(ctx, wireRequest{Update: update})
	if err != nil {
		return err
	}
	if answer.Updated == nil {
		return strange()
	}
	return nil
}

// Release releases the lock and waits until the cluster has acknowledged it. The caller must have stopped its work.
// While other guards of the same hold exist, only this guard ends and the lock stays held. A second call does nothing.
//
// If the lock is lost, Release returns the [*LostError] at once, and the client tells the cluster in the background that
// the work has stopped. If the context ends first, the release continues in the background; [Client.Close] waits for
// both.
func (g *Guard) Release(ctx context.Context) error {
	var err error
	g.once.Do(func() { err = g.hold.release(ctx) })
	return err
}

// release ends one guard of the hold.
func (h *hold) release(ctx context.Context) error {
	lost := h.check()
	h.mu.Lock()
	h.guards--
	last := h.guards == 0
	h.released = last
	h.mu.Unlock()
	if !last {
		if lost != nil {
			return lost
		}
		return nil
	}
	if lost != nil {
		h.finishInBackground(ctx)
		return lost
	}
	done := make(chan error, 1)
	h.lease.client.cleanUp(ctx, func(background context.Context) {
		err := h.finish(background)
		select {
		case <-ctx.Done():
			if err != nil && !errors.Is(err, ErrLost) {
				h.warn(err)
			}
		default:
		}
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return cancelled(ctx, EffectUnknown)
	}
}

func (h *hold) finishInBackground(ctx context.Context) {
	h.lease.client.cleanUp(ctx, func(ctx context.Context) {
		// The guard has reported a loss already.
		if err := h.finish(ctx); err != nil && !errors.Is(err, ErrLost) {
			h.warn(err)
		}
	})
}

func (h *hold) warn(err error) {
	h.lease.client.log.Warn("cannot release a lock; its lease runs out", "lock", h.locks[0].Name, "error", err)
}

// finish tells the cluster that the work has stopped, in the way that fits the lease.
func (h *hold) finish(ctx context.Context) error {
	lease := h.lease
	tokens := make([]uint64, 0, len(h.locks))
	for _, lock := range h.locks {
		tokens = append(tokens, uint64(lock.Token))
	}
	defer func() {
		if !h.own {
			// Several slots of one semaphore have one place in the local queue.
			for at, lock := range h.locks {
				if at == 0 || lock.Name != h.locks[at-1].Name {
					lease.freeLocalQueue(lock.Name)
				}
			}
		}
		// What still uses the context learns that the lock is not held any more.
		h.signal.fire(lostError(loss{cause: CauseReleased}, h.locks[0].Name, h.locks[0].Token))
	}()
	if h.inDoubt && !h.own {
		if err := h.giveBackWhatThereIs(ctx); err != nil {
			return err
		}
	}
	now := lease.client.clock.read()
	if h.own && lease.checkGrants(h.locks, now) == nil {
		// The lease is the guard's own and no lock was taken away: one revoke ends everything.
		for _, token := range tokens {
			lease.unlisten(token)
		}
		lease.with(func(state *leaseState) {
			for _, token := range tokens {
				state.stopped(token)
			}
		})
		return lease.revoke(ctx)
	}
	if !h.own && len(tokens) == 1 {
		var lock string
		var held bool
		lease.withAt(now, func(state *leaseState) { lock, held = state.givenBack(tokens[0], now) })
		if held {
			lease.unlisten(tokens[0])
			return lease.release(ctx, lock, tokens[0])
		}
	}
	return lease.farewell(ctx, tokens)
}

// raised raises the fence at the resource for every lock, or gives the locks back. A loss of the lock and the end of the
// caller's context are reported as such, whatever the fence made of them.
func (g *Guard) raised(ctx context.Context, raise func(context.Context, GrantedLock) error) (*Guard, error) {
	accepted := false
	defer func() {
		if !accepted {
			// It refused, panicked or ended its goroutine: no work has begun.
			g.once.Do(func() { g.hold.finishInBackground(ctx) })
		}
	}()
	within := g.hold.lease.client.config.Timeout
	late := fmt.Errorf("the fence did not end within %s: %w", seconds(within), context.DeadlineExceeded)
	limited, stop := context.WithTimeoutCause(ctx, within, late)
	defer stop()
	merged, end := g.workContext(limited)
	defer end()
	for _, lock := range g.Locks() {
		err := raise(merged, lock)
		switch lost := g.hold.check(); {
		case lost != nil:
			return nil, joined(lost, err)
		case ctx.Err() != nil:
			return nil, cancelled(ctx, EffectNone)
		case err == nil:
		case context.Cause(limited) == late:
			return nil, &FenceError{Lock: lock.Name, Err: late}
		default:
			return nil, &FenceError{Lock: lock.Name, Err: err}
		}
	}
	accepted = true
	return g, nil
}

func (g *Guard) String() string {
	lock := g.Locks()[0]
	return fmt.Sprintf("tenure.Guard(%s, token %d)", lock.Name, lock.Token)
}
