// Manages the client's connections: one session with the leader, one with another member on standby.
//
// One goroutine keeps two sessions. The first is with the leader, or with a member that forwards to it, and follows the
// leader when it changes. The second is with another member and carries renewals while the first does not answer. A
// session is told of the client's leases when it opens, so a first session that ends is replaced by a new one; the
// standby takes its place only if no new one can be opened.

package tenure

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// dialMax is the maximum time to connect and receive the welcome.
	dialMax = 2 * time.Second
	// The pause between attempts grows from the first value to the second.
	dialPauseMin = 20 * time.Millisecond
	dialPauseMax = time.Second
	// shunMin is how long the client does not retry a leader that it could not reach.
	shunMin = 500 * time.Millisecond
	// knownMax is the maximum number of addresses to remember.
	knownMax = 64
)

// A connections keeps the client's sessions. Other goroutines only see the current pair.
type connections struct {
	client *Client

	mu      sync.Mutex
	first   *session
	second  *session
	tried   []Tried
	denied  *RefusedError
	rounds  uint64 // rounds of attempts that connected to no member
	refused bool   // every address answered the last round of attempts, and none with a session
	changed chan struct{}

	// Only the goroutine uses these.
	known     []string
	turn      int
	connected bool
	pokes     chan struct{}
}

func newConnections(c *Client, addresses []string) *connections {
	return &connections{
		client: c, known: slices.Clone(addresses), turn: rand.N(64), changed: make(chan struct{}),
		pokes: make(chan struct{}, 1), connected: true,
	}
}

// poke makes the goroutine look at its sessions.
func (k *connections) poke() { signal(k.pokes) }

// run keeps the sessions until the context ends.
func (k *connections) run(ctx context.Context) {
	pause := dialPauseMin
	for ctx.Err() == nil {
		k.tidy()
		settled := true
		if k.now() == nil {
			settled = k.dialAny(ctx)
		}
		shun := false
		if k.now() != nil {
			followed := k.follow(ctx)
			settled, shun = followed, !followed
		}
		if k.now() != nil && k.standby() == nil && len(k.known) > 1 {
			settled = k.dialSecond(ctx) && settled
		}
		wait := time.Hour
		if settled {
			pause = dialPauseMin
		} else {
			wait = jittered(pause)
			pause = min(pause*2, dialPauseMax)
		}
		if shun {
			wait = max(wait, shunMin)
		}
		k.wait(ctx, wait)
	}
	first, second := k.pair()
	for _, it := range []*session{first, second} {
		if it != nil {
			it.close()
		}
	}
}

// wait waits until a session ends, the leader moves, or the time is over.
func (k *connections) wait(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-k.pokes:
	}
}

// publish changes what others see.
func (k *connections) publish(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
	close(k.changed)
	k.changed = make(chan struct{})
}

// pair returns the sessions that live.
func (k *connections) pair() (first, second *session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	first, second = k.first, k.second
	if first != nil && first.isOver() {
		first = nil
	}
	if second != nil && second.isOver() {
		second = nil
	}
	return first, second
}

// now returns the current session, if there is one.
func (k *connections) now() *session {
	first, _ := k.pair()
	return first
}

func (k *connections) standby() *session {
	_, second := k.pair()
	return second
}

// tidy drops sessions that are over.
func (k *connections) tidy() {
	first, second := k.pair()
	k.publish(func() { k.first, k.second = first, second })
}

// dialAny opens a first session, with the member of the standby if there is one.
func (k *connections) dialAny(ctx context.Context) bool {
	k.publish(func() { k.denied, k.refused = nil, false })
	addresses := k.inTurn()
	if second := k.standby(); second != nil {
		addresses = append([]string{second.address}, slices.DeleteFunc(addresses, func(it string) bool {
			return it == second.address
		})...)
	}
	var denied *RefusedError
	silent := false
	for _, address := range addresses {
		opened, failed := k.dial(ctx, address)
		if failed == nil {
			k.publish(func() {
				k.first = opened
				if k.second != nil && k.second.member == opened.member {
					// It is the same member. The renewals that are under way there may still be answered.
					old := k.second
					k.second = nil
					time.AfterFunc(dialMax, old.close)
				}
			})
			if !k.connected {
				k.client.log.Info("connected again", "address", address)
			}
			k.connected = true
			k.meet(ctx, opened)
			return true
		}
		if failed.denied != nil {
			denied = failed.denied
		}
		silent = silent || failed.silent
		if ctx.Err() != nil {
			return false
		}
	}
	if second := k.standby(); second != nil {
		k.publish(func() { k.first, k.second = second, nil })
		return true
	}
	if denied != nil {
		for _, lease := range k.client.heldLeases() {
			lease.with((*leaseState).credentialsRefused)
		}
	}
	k.publish(func() { k.denied, k.refused, k.rounds = denied, !silent, k.rounds+1 })
	if k.connected {
		k.connected = false
		k.client.log.Warn("no member can be reached; trying again", "tried", k.outcomes())
	}
	return false
}

// inTurn returns the known addresses, beginning with another one each time.
func (k *connections) inTurn() []string {
	k.turn++
	at := k.turn % len(k.known)
	return slices.Concat(k.known[at:], k.known[:at])
}

func (k *connections) dialSecond(ctx context.Context) bool {
	first := k.now()
	if first == nil {
		return false
	}
	for _, address := range k.inTurn() {
		if address == first.address {
			continue
		}
		opened, failed := k.dial(ctx, address)
		switch {
		case failed != nil:
		case opened.member == first.member:
			// The same member under another address is no standby.
			opened.close()
			k.known = slices.DeleteFunc(k.known, func(it string) bool { return it == address })
		default:
			k.publish(func() { k.second = opened })
			return true
		}
	}
	return len(k.known) == 1
}

// follow makes the session with the leader the first one, as far as the leader is known. It returns false if the
// leader cannot be reached; its followers forward requests meanwhile.
func (k *connections) follow(ctx context.Context) bool {
	first := k.now()
	if first == nil {
		return true
	}
	leader, elsewhere := first.leaderElsewhere()
	if !elsewhere {
		return true
	}
	opened, failed := k.dial(ctx, leader.Address)
	if failed != nil {
		return false
	}
	k.learn(leader.Address)
	_, second := k.pair()
	k.publish(func() { k.first, k.second = opened, first })
	if second != nil {
		// Requests that wait there are asked again on the new session.
		second.close()
	}
	return true
}

func (k *connections) dial(ctx context.Context, address string) (*session, *dialError) {
	opened, failed := openSession(ctx, k.client, address)
	outcome := "connected"
	if failed != nil {
		outcome = failed.word
	}
	k.mu.Lock()
	at := slices.IndexFunc(k.tried, func(it Tried) bool { return it.Address == address })
	// A member that stays away is dialled again and again; only news are worth a line.
	news := at < 0 || k.tried[at].Outcome != outcome
	if at >= 0 {
		k.tried = slices.Delete(k.tried, at, at+1)
	}
	k.tried = append(k.tried, Tried{Address: address, Outcome: outcome})
	if len(k.tried) > knownMax {
		k.tried = k.tried[1:]
	}
	k.mu.Unlock()
	if news {
		k.client.log.Debug("dialled a member", "address", address, "outcome", outcome)
	}
	return opened, failed
}

// meet asks a member for the addresses of the others.
func (k *connections) meet(ctx context.Context, at *session) {
	ctx, cancel := context.WithTimeout(ctx, dialMax)
	defer cancel()
	var members struct {
		Members []struct {
			MemberID      decimal `json:"member_id"`
			ClientAddress string  `json:"client_address"`
		} `json:"members"`
	}
	if err := k.client.httpJSON(ctx, at.address, http.MethodGet, "/v1/cluster/members", nil, &members); err != nil {
		// The addresses that the caller gave still serve.
		k.client.log.Debug("cannot list the members", "address", at.address, "error", err)
		return
	}
	for _, member := range members.Members {
		// The member itself is known under the address that led to it.
		if uint64(member.MemberID) != at.member {
			k.learn(member.ClientAddress)
		}
	}
}

func (k *connections) learn(address string) {
	nowhere := address == "" || address == "-"
	if !nowhere && len(k.known) < knownMax && !slices.Contains(k.known, address) {
		k.known = append(k.known, address)
	}
}

func (k *connections) outcomes() string {
	var words []string
	for _, tried := range k.triedNow() {
		words = append(words, tried.Address+" "+tried.Outcome)
	}
	return strings.Join(words, ", ")
}

func (k *connections) triedNow() []Tried {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.tried)
}

// errNoSession: there is no session, and waiting longer is of no use.
var errNoSession = errors.New("no session")

// session returns a session, as soon as there is one. It fails when the context ends, and with errNoSession when
// members refuse the credentials; with atOnce also once no member could be connected to in a whole round of attempts.
func (k *connections) session(ctx context.Context, atOnce bool) (*session, error) {
	k.mu.Lock()
	rounds := k.rounds
	k.mu.Unlock()
	for {
		k.mu.Lock()
		first, denied, now, changed := k.first, k.denied, k.rounds, k.changed
		k.mu.Unlock()
		if first != nil && !first.isOver() {
			return first, nil
		}
		if denied != nil || atOnce && now != rounds {
			return nil, errNoSession
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-k.client.ended:
			return nil, errNoSession
		case <-changed:
		}
	}
}

// deniedBy returns the refusal of the client's credentials, if that is why there is no session.
func (k *connections) deniedBy() *RefusedError {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.denied
}
