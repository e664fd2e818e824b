// Keeps a granted lease, and notifies everything that relies on it when it is lost.

package tenure

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"strconv"
	"sync"
)

// A heldLease is a lease that the cluster has granted.
type heldLease struct {
	client  *Client
	id      LeaseID
	created uint64

	mu       sync.Mutex
	state    *leaseState
	standing Standing
	// signals are the subscribers to the loss of each grant, and lost is that of the lease itself.
	signals map[uint64]*lossSignal
	lost    *lossSignal
	revoked bool

	seqs seqs
	// localQueues has the queue of each lock that this process requests or holds under the lease: a second request waits
	// inside the process.
	localQueues map[string]*localQueue
}

// newHeldLease creates the lease from the cluster's answer and the lease state that began with the request.
func newHeldLease(c *Client, granted *wireLeaseGranted, state *leaseState) *heldLease {
	state.plant = c.plant
	held := &heldLease{
		client: c, id: LeaseID(granted.Lease), created: uint64(granted.Created), state: state,
		signals: map[uint64]*lossSignal{}, lost: newLossSignal(context.Background()),
		localQueues: map[string]*localQueue{}, seqs: seqs{room: make(chan struct{}, seqsMax)},
	}
	c.mu.Lock()
	c.leases[held.id] = held
	c.mu.Unlock()
	c.wakeRenewalsBefore(state.due())
	return held
}

// name returns the id as the cluster writes it.
func (h *heldLease) name() string { return strconv.FormatUint(uint64(h.id), 10) }

// forget removes the lease from the client: nothing relies on it any more.
func (h *heldLease) forget() {
	h.client.mu.Lock()
	delete(h.client.leases, h.id)
	h.client.mu.Unlock()
	h.client.report()
}

// with changes the lease state, and notifies everything that relies on what the change loses.
func (h *heldLease) with(act func(*leaseState)) {
	h.withAt(h.client.clock.read(), act)
}

// withAt does the same for a caller that has just read the clock.
func (h *heldLease) withAt(now clockReading, act func(*leaseState)) {
	h.mu.Lock()
	act(h.state)
	standing := h.state.standing(now)
	changed := standing != h.standing
	h.standing = standing
	var fired []grantLoss
	var signals []*lossSignal
	for _, lost := range h.state.losses() {
		if signal := h.signals[lost.token]; signal != nil && !signal.isFired() {
			fired, signals = append(fired, lost), append(signals, signal)
		}
	}
	over := h.state.lost
	h.mu.Unlock()
	// Cancelling runs functions of the caller's contexts, so none fires under the lock.
	if over != nil {
		h.lost.fire(lostError(*over, "", 0))
	}
	for at, lost := range fired {
		if signals[at].fire(lostError(lost.lost, lost.lock, Token(lost.token))) && !lost.stopped {
			// A handler of logs may block, and what is told here may come from the goroutine that renews.
			go h.client.log.Warn("lost a lock", "lock", lost.lock, "token", lost.token, "lease", uint64(h.id),
				"cause", string(lost.lost.cause), "because", lost.lost.String())
		}
	}
	if changed {
		h.tellStanding(standing)
	}
	if over == nil && len(fired) == 0 {
		return
	}
	if h.client.plant == plantReleaseWhileWorking && len(fired) > 0 {
		h.client.cleanUp(unasked, func(ctx context.Context) { _ = h.farewell(ctx, nil) })
	}
	h.client.report()
}

// tellStanding passes a new standing on to the guards that subscribed.
func (h *heldLease) tellStanding(standing Standing) {
	h.mu.Lock()
	signals := []*lossSignal{h.lost}
	for _, signal := range h.signals {
		signals = append(signals, signal)
	}
	h.mu.Unlock()
	for _, signal := range signals {
		signal.stands(standing)
	}
}

// check returns the loss of the lease, by the clock of this moment.
func (h *heldLease) check() *loss {
	now := h.client.clock.read()
	var lost *loss
	h.withAt(now, func(state *leaseState) { lost = state.check(now) })
	return lost
}

// checkGrants returns the first loss among these grants, by the clock of this moment.
func (h *heldLease) checkGrants(locks []GrantedLock, now clockReading) *LostError {
	var found *LostError
	h.withAt(now, func(state *leaseState) {
		for _, lock := range locks {
			if lost := state.checkGrant(uint64(lock.Token), now); lost != nil {
				found = lostError(*lost, lock.Name, lock.Token)
				return
			}
		}
	})
	return found
}

func (h *heldLease) isIdle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state.isIdle()
}

func (h *heldLease) inUse() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state.inUse()
}

// listen subscribes to the loss of a grant that is not yet recorded in the lease state.
func (h *heldLease) listen(token uint64, signal *lossSignal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.signals[token] = signal
}

// unlisten ends the subscription to a grant that was released.
func (h *heldLease) unlisten(token uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.signals, token)
}

// farewell tells the cluster what it may know about grants whose work has stopped.
func (h *heldLease) farewell(ctx context.Context, tokens []uint64) error {
	now := h.client.clock.read()
	var lost *loss
	var farewells []farewell
	h.withAt(now, func(state *leaseState) {
		lost = state.check(now)
		for _, token := range tokens {
			state.stopped(token)
		}
		farewells = state.farewells()
	})
	var outcome error
	for _, it := range farewells {
		switch {
		case it.message == endConfirm:
			outcome = errors.Join(outcome, h.confirm(ctx, it.lock, it.token))
		case lost == nil:
			outcome = errors.Join(outcome, h.release(ctx, it.lock, it.token))
		}
		// A lost lease is revoked as a whole.
	}
	for _, token := range tokens {
		h.unlisten(token)
	}
	// The last work under the lost lease has stopped: revoke it, so that other clients do not wait until it runs out.
	if lost != nil {
		outcome = errors.Join(outcome, h.revoke(ctx))
	}
	return outcome
}

// release releases a lock. The token identifies the grant, so the request needs no number: doing it twice is doing it
// once.
func (h *heldLease) release(ctx context.Context, lock string, token uint64) error {
	hold := &wireHold{Lock: lock, Lease: decimal(h.id), Token: decimal(token)}
	it := &calling{request: wireRequest{Release: hold}}
	answer, err := h.client.do(ctx, it)
	switch {
	case err == nil && answer.Released == nil:
		return strange()
	case err == nil:
		return nil
	// An earlier, unanswered attempt may have released the lock.
	case isReason(err, "NOT_HOLDER") && it.doubted:
		return nil
	// The lock was lost, and the notice of that has not arrived.
	case isReason(err, "NOT_HOLDER") || isReason(err, "LEASE_NOT_FOUND"):
		return lostError(loss{cause: CauseGone}, lock, Token(token))
	}
	return err
}

// confirm tells the cluster that the work under a lock that was taken away has stopped.
func (h *heldLease) confirm(ctx context.Context, lock string, token uint64) error {
	stopped := &wireStopped{
		Lock: lock, Lease: decimal(h.id), LeaseCreated: decimal(h.created), Token: decimal(token),
	}
	_, err := h.client.call(ctx, wireRequest{Stopped: stopped}, identity{})
	// Not cooling: the lock has already gone to the next holder, so there is nothing to confirm.
	if isReason(err, "NOT_COOLING") {
		return nil
	}
	return err
}

// revoke revokes the lease, if no work runs under it.
func (h *heldLease) revoke(ctx context.Context) error {
	if !h.endForRevoke() {
		return nil
	}
	defer h.forget()
	return h.client.revoke(ctx, h.id)
}

// revokeInBackground does the same without waiting.
func (h *heldLease) revokeInBackground(ctx context.Context) {
	if !h.endForRevoke() {
		return
	}
	h.client.cleanUp(ctx, func(ctx context.Context) {
		defer h.forget()
		if err := h.client.revoke(ctx, h.id); err != nil && !errors.Is(err, ErrLost) {
			h.client.log.Warn("cannot revoke a lease; it runs out", "lease", uint64(h.id), "error", err)
		}
	})
}

// endForRevoke ends the lease here before the cluster hears of it: an acquire that is under way may be granted and
// taken back by the revocation, so its answer must not become a guard. It returns true for the one caller that sends
// the revocation.
func (h *heldLease) endForRevoke() bool {
	idle := false
	h.with(func(state *leaseState) {
		idle = state.endIfIdle()
		if idle && h.revoked {
			idle = false
		} else if idle {
			h.revoked = true
		}
	})
	return idle
}

// revoke revokes a lease. If it had ended before, which the client was not told, it returns the loss.
func (c *Client) revoke(ctx context.Context, id LeaseID) error {
	it := &calling{request: wireRequest{Revoke: &wireRevoke{Lease: decimal(id)}}}
	_, err := c.do(ctx, it)
	if isReason(err, "LEASE_NOT_FOUND") {
		if it.doubted {
			return nil
		}
		return lostError(loss{cause: CauseGone}, "", 0)
	}
	return err
}

// giveBack revokes a lease in the background that may have been granted and that no caller uses.
func (c *Client) giveBack(ctx context.Context, id LeaseID) {
	c.cleanUp(ctx, func(ctx context.Context) {
		// If the revoke fails, the lease expires.
		if err := c.revoke(ctx, id); err != nil && !errors.Is(err, ErrLost) {
			c.log.Debug("cannot revoke a lease; it runs out", "lease", uint64(id), "error", err)
		}
	})
}

// newLeaseID draws an id here, so that the request can be repeated.
func newLeaseID() LeaseID {
	var bytes [8]byte
	// It never fails: the package crashes the program if the system has no randomness.
	_, _ = rand.Read(bytes[:])
	return LeaseID(max(binary.LittleEndian.Uint64(bytes[:])>>1, 1))
}

// grantLease requests a lease from the cluster.
func (c *Client) grantLease(ctx context.Context, timing leaseTiming) (*heldLease, error) {
	pending := pendingGrant{timing: timing}
	id := newLeaseID()
	// Granting by id is harmless to repeat; the lease time counts from the first send.
	pending.sent(c.clock.read())
	grant := &wireGrantLease{TTLMs: uint64(timing.ttl.Milliseconds()), Lease: decimal(id), Client: c.config.Name}
	it := &calling{request: wireRequest{GrantLease: grant}, within: min(c.config.Timeout, timing.window)}
	answer, err := c.do(ctx, it)
	if err != nil {
		if EffectOf(err) == EffectUnknown {
			c.giveBack(ctx, id)
		}
		return nil, err
	}
	if answer.LeaseGranted == nil {
		return nil, strange()
	}
	state, late := pending.granted(c.clock.read())
	if state == nil {
		c.giveBack(ctx, id)
		return nil, lostError(loss{cause: CauseUnreachable, lasted: late}, "", 0)
	}
	return newHeldLease(c, answer.LeaseGranted, state), nil
}

// isReason returns whether err is a refusal for this reason.
func isReason(err error, reason string) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Reason == reason
}
