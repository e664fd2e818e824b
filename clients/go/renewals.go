// Renews all leases of a client with few messages, and notices in time when one is over.
//
// One goroutine sleeps on an alarm of the clock that counts suspend, and never blocks otherwise. When one lease is due,
// it renews every lease that will be due soon with the same command. The first attempt goes to the leader. While it is
// unanswered, further attempts go to the standby and to the leader in turn, each independently.

package tenure

import "time"

// A renewalPart is a lease in a renewal, and the number of the attempt.
type renewalPart struct {
	lease  *heldLease
	number uint64
}

// wakeRenewals makes the goroutine check the leases at once.
func (c *Client) wakeRenewals() {
	c.wakes.Add(1)
	c.alarm.set(1)
}

// wakeRenewalsBefore makes the goroutine check at once, if it would otherwise check after this moment or does not know
// when.
func (c *Client) wakeRenewalsBefore(at moment) {
	if at < moment(c.nextCheck.Load()) {
		c.wakeRenewals()
	}
}

// renewLeases runs until the client has ended.
func (c *Client) renewLeases() {
	turn := 0
	for {
		before := c.wakes.Load()
		// A lease that is registered while the time of the next check is not known wakes this goroutine.
		c.nextCheck.Store(uint64(farMoment))
		next := c.checkLeases(&turn)
		c.alarm.set(next)
		c.nextCheck.Store(uint64(next))
		// A goroutine that woke this one meanwhile may have set the alarm before this one did. Its wake-up must not be
		// lost.
		if c.wakes.Load() != before {
			c.alarm.set(1)
		}
		if !c.alarm.wait() {
			return
		}
	}
}

// checkLeases ends what is over, sends the renewals that are due, and returns when to check again.
func (c *Client) checkLeases(turn *int) moment {
	leases := c.heldLeases()
	due := false
	for _, lease := range leases {
		now := c.clock.read()
		lease.withAt(now, func(state *leaseState) { due = state.poll(now) || due })
	}
	if due {
		c.sendRenewals(leases, turn)
	}
	next := farMoment
	for _, lease := range leases {
		lease.mu.Lock()
		lost, idle := lease.state.lost != nil, lease.state.isIdle()
		if !lost {
			next = min(next, lease.state.due())
		}
		lease.mu.Unlock()
		// Nothing relies on it any more: other clients need not wait until it runs out.
		if lost && idle {
			lease.revokeInBackground(unasked)
		}
	}
	return next
}

func (c *Client) sendRenewals(leases []*heldLease, turn *int) {
	again := false
	for _, lease := range leases {
		lease.mu.Lock()
		again = again || lease.state.isRetrying()
		lease.mu.Unlock()
	}
	if *turn++; !again {
		*turn = 0
	}
	var sessions []*session
	first, second := c.connections.pair()
	for _, it := range []*session{first, second} {
		if it != nil {
			sessions = append(sessions, it)
		}
	}
	var to *session
	if len(sessions) > 0 {
		to = sessions[*turn%len(sessions)]
	}
	var parts []renewalPart
	for _, lease := range leases {
		// Read the clock before anything is sent: the renewed lease counts from here.
		now := c.clock.read()
		lease.mu.Lock()
		if lease.state.isSoon(now) {
			parts = append(parts, renewalPart{lease: lease, number: lease.state.renewing(now)})
		}
		lease.mu.Unlock()
	}
	for len(parts) > 0 {
		count := min(len(parts), renewMax)
		c.renew(to, parts[:count:count])
		parts = parts[count:]
	}
}

// renew sends one renewal to one member.
func (c *Client) renew(to *session, parts []renewalPart) {
	window := ttlMax
	leases := &wireLeases{}
	for _, part := range parts {
		window = min(window, part.lease.state.timing.window)
		leases.Leases = append(leases.Leases, decimal(part.lease.id))
	}
	var asked *ask
	if to != nil {
		asked = to.ask(wireRequest{Renew: leases, DeadlineMs: uint32(millis(window))})
	}
	if asked == nil {
		failRenewal(parts)
		return
	}
	go c.awaitRenewal(to, asked, parts, window)
}

// awaitRenewal waits for the answer. Later attempts run independently; this one can still prove something until its
// window is over.
func (c *Client) awaitRenewal(to *session, asked *ask, parts []renewalPart, window time.Duration) {
	defer asked.drop()
	timer := time.NewTimer(window)
	defer timer.Stop()
	var said response
	select {
	case said = <-asked.responses:
	case <-timer.C:
		to.suspect()
	}
	if said.answer == nil || len(said.answer.Renewed) != len(parts) {
		failRenewal(parts)
		return
	}
	for at, part := range parts {
		renewed := said.answer.Renewed[at]
		now := c.clock.read()
		var effect ackEffect
		part.lease.withAt(now, func(state *leaseState) {
			effect = state.renewed(part.number, milliseconds(renewed.TTLMs), uint64(renewed.Changed), now)
		})
		if effect == ackReadHoldings {
			go c.readHoldings(part.lease, window)
		}
	}
	c.wakeRenewals()
}

func failRenewal(parts []renewalPart) {
	for _, part := range parts {
		part.lease.with(func(state *leaseState) { state.notRenewed(part.number) })
	}
}

// readHoldings reads what a lease holds, because it lost something that the client may not have been told of.
func (c *Client) readHoldings(lease *heldLease, window time.Duration) {
	it := &calling{request: wireRequest{GetLease: &wireTarget{Name: lease.name()}}, within: window}
	answer, err := c.do(unasked, it)
	now := c.clock.read()
	switch {
	case err != nil && !isReason(err, "LEASE_NOT_FOUND"):
		// The next acknowledgement triggers another read.
	case err != nil || answer.Lease == nil || answer.Lease.Lease == nil:
		lease.withAt(now, func(state *leaseState) { state.ended(loss{cause: CauseGone}, now) })
	default:
		shown := answer.Lease.Lease
		var holds []uint64
		for _, hold := range shown.Holds {
			holds = append(holds, uint64(hold.Token))
		}
		lease.withAt(now, func(state *leaseState) {
			state.holdings(uint64(answer.Revision), uint64(shown.Changed), holds, now)
		})
	}
}
