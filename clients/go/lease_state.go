// Tracks the state of one lease from its request to its loss.
//
// Nothing in this file reads a clock or sends anything: clock readings and answers go in; what to send, and until when
// the lease counts as held, come out. The rule: time counts from the clock reading before the first send of the newest
// acknowledged renewal. The cluster began its ttl at that moment or later. The client stops one window after that
// reading, and the window is shorter than the ttl by at least what the clocks may differ, so the client stops first. A
// loss is final: no later answer revives it.

package tenure

import (
	"maps"
	"slices"
	"time"
)

// sleepMin: a smaller difference between the clocks is not a suspend but the time between their two readings.
const sleepMin = 50 * time.Millisecond

// A Standing says whether a lease, and what it holds, may still be relied on.
type Standing int

// The standings of a lease or guard.
const (
	// Valid: a renewal was acknowledged recently.
	Valid Standing = iota
	// Overdue: still held, but renewals have not been acknowledged for longer than they should take. Start nothing long.
	Overdue
	// Lost: over, permanently.
	Lost
)

func (s Standing) String() string {
	return [...]string{"valid", "overdue", "lost"}[s]
}

// A pendingGrant is a lease that was requested and is not granted yet.
type pendingGrant struct {
	timing leaseTiming
	first  *moment
}

// A leaseState is the state of a granted lease.
type leaseState struct {
	timing leaseTiming
	// since is when the newest acknowledged request was sent for the first time.
	since   moment
	lost    *loss
	tries   []renewalAttempt
	newest  uint64
	nextTry moment
	// known is the revision up to which the client knows of all involuntary losses.
	known uint64
	// proof is an acknowledgement that counts only after the holdings were read.
	proof  *renewalProof
	grants map[uint64]*heldGrant
	wake   wakeRecord
	// refused is whether members refused the client's credentials since the newest acknowledged renewal.
	refused bool
	plant   plant
}

type renewalAttempt struct {
	number uint64
	sent   moment
}

type renewalProof struct {
	sent    moment
	changed uint64
}

type heldGrant struct {
	lock string
	// at is a revision at which the lock was surely held.
	at   uint64
	lost *loss
	// stopped is whether the work under the lock has stopped; told, whether the cluster was told so.
	stopped bool
	told    bool
}

// A grantLoss is a grant that is lost.
type grantLoss struct {
	token   uint64
	lock    string
	lost    loss
	stopped bool
}

// A wakeRecord is what is known about why nothing was acknowledged.
type wakeRecord struct {
	// due is when the lease asked to be polled next.
	due    moment
	slept  time.Duration
	late   time.Duration
	napped time.Duration
	// failed counts attempts that were not answered in time while the process was awake.
	failed uint32
}

// An ackEffect is what the caller has to do after an acknowledgement.
type ackEffect int

const (
	ackNothing ackEffect = iota
	// ackReadHoldings: read what the lease holds, and pass it to holdings.
	ackReadHoldings
)

// An endMessage is what the client tells the cluster once the work under a lock has stopped.
type endMessage int

const (
	endRelease endMessage = iota
	// endConfirm: the work under a lock that was taken away has stopped, so the next grant need not wait longer.
	endConfirm
)

// A farewell is one thing to tell the cluster about a lock whose work has stopped.
type farewell struct {
	token   uint64
	lock    string
	message endMessage
}

// sent records that the request is about to be sent, for the first time or again under the same id.
func (p *pendingGrant) sent(now clockReading) {
	// The answer to a repetition may be the recorded one, so only the first send counts.
	if p.first == nil {
		p.first = &now.boot
	}
}

// granted records the grant. It returns nil, and how long the answer took, if the answer came after the time for which
// the lease could be relied on; the lease must then be revoked.
func (p *pendingGrant) granted(now clockReading) (*leaseState, time.Duration) {
	since := now.boot
	if p.first != nil {
		since = *p.first
	}
	if now.boot >= since.add(p.timing.window) {
		return nil, now.boot.since(since)
	}
	next := since.add(p.timing.renewAfter())
	return &leaseState{
		timing:  p.timing,
		since:   since,
		nextTry: next,
		grants:  map[uint64]*heldGrant{},
		wake:    wakeRecord{due: next, slept: now.slept()},
	}, 0
}

// lostAt is the instant from which the lease counts as lost, unless something newer is acknowledged.
func (s *leaseState) lostAt() moment { return s.since.add(s.timing.window) }

// due is when to poll the lease next.
func (s *leaseState) due() moment {
	doubtful := s.since.add(s.timing.doubtfulAfter())
	if s.wake.due >= doubtful {
		doubtful = s.lostAt()
	}
	return min(s.nextTry, doubtful, s.lostAt())
}

// poll checks the clock, and returns whether to send a renewal now.
func (s *leaseState) poll(now clockReading) bool {
	at, retry := now.boot, s.timing.retry()
	late := at.since(s.wake.due)
	if late > retry {
		s.wake.late = max(s.wake.late, late)
	}
	slept := max(now.slept()-s.wake.slept, 0)
	s.wake.slept = now.slept()
	if slept > sleepMin {
		s.wake.napped += slept
	}
	s.expire(at)
	if late <= retry && slept <= sleepMin {
		var overdue uint32
		for _, it := range s.tries {
			if it.sent.add(retry) <= at {
				overdue++
			}
		}
		s.wake.failed = max(s.wake.failed, overdue)
	}
	s.wake.due = at
	renew := s.lost == nil && at >= s.nextTry
	if renew {
		s.wake.due = at.add(retry)
	} else {
		s.wake.due = max(s.due(), at)
	}
	return renew
}

// isSoon returns whether a renewal is due, or will be within a quarter of the renewal interval. Leases that are renewed
// together stay together.
func (s *leaseState) isSoon(now clockReading) bool {
	return s.lost == nil && now.boot.add(s.timing.renewAfter()/4) >= s.nextTry
}

// isRetrying returns whether a renewal is still unanswered, or has failed.
func (s *leaseState) isRetrying() bool {
	return s.lost == nil && (s.wake.failed > 0 || len(s.tries) > 0)
}

// renewing records that a renewal is about to be sent, and returns its number, which comes back with the answer.
func (s *leaseState) renewing(now clockReading) uint64 {
	sent := now.boot
	// A renewal that was sent a window ago proves nothing any more.
	s.tries = slices.DeleteFunc(s.tries, func(it renewalAttempt) bool { return it.sent.add(s.timing.window) <= sent })
	s.newest++
	s.tries = append(s.tries, renewalAttempt{number: s.newest, sent: sent})
	s.nextTry = sent.add(s.timing.retry())
	return s.newest
}

// renewed records an acknowledged renewal: the lease has ttl again, or no longer exists if ttl is 0.
func (s *leaseState) renewed(number uint64, ttl time.Duration, changed uint64, now clockReading) ackEffect {
	s.expire(now.boot)
	found := slices.IndexFunc(s.tries, func(it renewalAttempt) bool { return it.number == number })
	if found < 0 {
		return ackNothing
	}
	sent := s.tries[found].sent
	s.tries = slices.Delete(s.tries, found, found+1)
	if s.plant == plantRenewalFromAnswer {
		sent = now.boot
	}
	if s.lost != nil {
		if s.plant == plantLossNotFinal {
			s.revive(sent)
		}
		return ackNothing
	}
	if ttl == 0 {
		// The lease could not have expired by our own clock yet: it was ended, and the client was not told.
		s.lose(loss{cause: CauseGone})
		return ackNothing
	}
	if changed > s.known {
		if s.proof != nil {
			sent = max(sent, s.proof.sent)
		}
		s.proof = &renewalProof{sent: sent, changed: changed}
		return ackReadHoldings
	}
	s.acknowledged(sent)
	return ackNothing
}

// notRenewed records that a renewal failed or was not answered in time.
func (s *leaseState) notRenewed(number uint64) {
	s.tries = slices.DeleteFunc(s.tries, func(it renewalAttempt) bool { return it.number == number })
	s.wake.failed++
}

// holdings records what the lease held at a revision; changed is the newest loss up to then.
func (s *leaseState) holdings(revision, changed uint64, holds []uint64, now clockReading) {
	s.expire(now.boot)
	for token, grant := range s.grants {
		// A lock that was granted after the reading is rightly missing in it.
		if grant.at <= revision && !slices.Contains(holds, token) && grant.lost == nil {
			grant.lost = &loss{cause: CauseGone}
		}
	}
	s.known = max(s.known, changed)
	if s.proof != nil && s.proof.changed <= s.known {
		sent := s.proof.sent
		s.proof = nil
		if s.lost == nil {
			s.acknowledged(sent)
		}
	}
}

// ended records that the lease has ended or is unknown.
func (s *leaseState) ended(lost loss, now clockReading) {
	// If renewals stopped for local reasons, the local clock knows the cause better than the cluster.
	s.expire(now.boot)
	s.lose(lost)
}

// granted records a granted lock. It becomes a guard only if the lease can be relied on now.
func (s *leaseState) granted(lock string, token, at uint64, now clockReading) *loss {
	if lost := s.check(now); lost != nil {
		return lost
	}
	// A member that was behind may report a grant after the lease has lost something newer. That loss may be the loss
	// of this very grant, and acknowledged renewals have moved the local deadline beyond it since.
	if at < s.known {
		return &loss{cause: CauseGone}
	}
	s.grants[token] = &heldGrant{lock: lock, at: at}
	return nil
}

// regranted moves a held lock to another token.
func (s *leaseState) regranted(old, new, at uint64) {
	if grant, ok := s.grants[old]; ok {
		delete(s.grants, old)
		grant.at = at
		s.grants[new] = grant
	}
}

// taken records the loss of a lock that this client did not release.
func (s *leaseState) taken(token uint64, lost loss) {
	if grant, ok := s.grants[token]; ok && grant.lost == nil {
		grant.lost = &lost
	}
}

// check returns the loss if the lease cannot be relied on at this moment.
func (s *leaseState) check(now clockReading) *loss {
	if s.plant != plantCheckByTimer {
		s.expire(now.boot)
	}
	return s.lost
}

// checkGrant returns the loss if a lock cannot be relied on at this moment.
func (s *leaseState) checkGrant(token uint64, now clockReading) *loss {
	if lost := s.check(now); lost != nil {
		return lost
	}
	grant, ok := s.grants[token]
	if !ok {
		return &loss{cause: CauseReleased}
	}
	return grant.lost
}

// standing returns the standing at this moment.
func (s *leaseState) standing(now clockReading) Standing {
	switch {
	case s.check(now) != nil:
		return Lost
	case now.boot >= s.since.add(s.timing.doubtfulAfter()):
		return Overdue
	}
	return Valid
}

// losses returns the lost locks with their causes, in the order of their tokens.
func (s *leaseState) losses() []grantLoss {
	var losses []grantLoss
	for _, token := range s.tokens() {
		grant := s.grants[token]
		lost := grant.lost
		if lost == nil {
			lost = s.lost
		}
		if lost != nil {
			losses = append(losses, grantLoss{token: token, lock: grant.lock, lost: *lost, stopped: grant.stopped})
		}
	}
	return losses
}

// inUse returns the names of the locks whose work has not stopped.
func (s *leaseState) inUse() []string {
	var locks []string
	for _, token := range s.tokens() {
		if grant := s.grants[token]; !grant.stopped {
			locks = append(locks, grant.lock)
		}
	}
	return locks
}

// stopped records that the work under a lock has stopped, so that the cluster may be told.
func (s *leaseState) stopped(token uint64) {
	if grant, ok := s.grants[token]; ok {
		grant.stopped = true
	}
}

// givenBack removes a lock whose work has stopped while it could be relied on, and returns its name for the release.
// It returns false if the lock was lost; then stopped and farewells determine what to tell the cluster.
func (s *leaseState) givenBack(token uint64, now clockReading) (string, bool) {
	if s.checkGrant(token, now) != nil {
		return "", false
	}
	lock := s.grants[token].lock
	delete(s.grants, token)
	return lock, true
}

// farewells returns what to tell the cluster now, each item once, in the order of the tokens. A lock is never released
// before its work has stopped.
func (s *leaseState) farewells() []farewell {
	var farewells []farewell
	for _, token := range s.tokens() {
		grant := s.grants[token]
		over := grant.stopped
		if s.plant == plantReleaseWhileWorking && (grant.lost != nil || s.lost != nil) {
			over = true
		}
		if grant.told || !over {
			continue
		}
		grant.told = true
		message := endRelease
		if grant.lost != nil {
			message = endConfirm
		}
		farewells = append(farewells, farewell{token: token, lock: grant.lock, message: message})
	}
	maps.DeleteFunc(s.grants, func(_ uint64, it *heldGrant) bool { return it.told && it.stopped })
	return farewells
}

// isIdle returns whether no work runs under the lease, so that it may be revoked.
func (s *leaseState) isIdle() bool {
	for _, grant := range s.grants {
		if !grant.stopped {
			return false
		}
	}
	return true
}

// endIfIdle ends the lease if no work runs under it, and returns whether it has ended. From then on no grant becomes a
// guard, so the lease may be revoked.
func (s *leaseState) endIfIdle() bool {
	idle := s.isIdle()
	if idle {
		s.lose(loss{cause: CauseReleased})
	}
	return idle
}

// credentialsRefused records that members refuse the client's credentials: that is the cause if no renewal is
// acknowledged before the deadline.
func (s *leaseState) credentialsRefused() { s.refused = true }

func (s *leaseState) acknowledged(sent moment) {
	s.since = max(s.since, sent)
	// Renewals that were sent before this one prove nothing more.
	if s.plant != plantLossNotFinal {
		s.tries = slices.DeleteFunc(s.tries, func(it renewalAttempt) bool { return it.sent <= s.since })
	}
	s.nextTry = s.since.add(s.timing.renewAfter())
	s.refused = false
	s.wake.failed, s.wake.late, s.wake.napped = 0, 0, 0
	s.wake.due = min(s.wake.due, s.due())
}

func (s *leaseState) expire(at moment) {
	if s.lost != nil || at < s.lostAt() {
		return
	}
	late, slept := max(s.wake.late, at.since(s.wake.due)), s.wake.napped
	silent := at.since(s.since)
	switch {
	case s.refused:
		s.lose(loss{cause: CauseCredentialsRefused, lasted: silent})
	case s.wake.failed > 0:
		s.lose(loss{cause: CauseUnreachable, lasted: silent})
	case slept > sleepMin:
		s.lose(loss{cause: CauseSuspended, lasted: slept})
	case late > s.timing.retry():
		s.lose(loss{cause: CauseStalled, lasted: late})
	default:
		s.lose(loss{cause: CauseUnreachable, lasted: silent})
	}
}

func (s *leaseState) lose(lost loss) {
	if s.lost == nil {
		s.lost = &lost
		if s.plant != plantLossNotFinal {
			s.tries = nil
		}
	}
}

// revive is the planted bug of a client that accepts an answer no matter how late it comes.
func (s *leaseState) revive(sent moment) {
	s.lost = nil
	s.acknowledged(sent)
}

// tokens returns the tokens of all grants in ascending order.
func (s *leaseState) tokens() []uint64 {
	return slices.Sorted(maps.Keys(s.grants))
}
