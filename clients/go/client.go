// Holds what a client, its leases and its goroutines share, and opens and closes it.

package tenure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-lock/tenure/clients/go/internal/planted"
)

// renewMax is the most leases that one renewal, and one hello, may name.
const renewMax = 4_096

// A Token is a fencing token: a number that is larger at every grant. Pass it to the resource that the lock protects.
type Token uint64

// A Revision counts the changes of the cluster's state.
type Revision uint64

// A LeaseID is the id of a lease.
type LeaseID uint64

// A Client is a connection to a cluster. All of its methods are safe for concurrent use. One client per process
// suffices: it has two sessions, however many leases it holds.
type Client struct {
	config      Config
	log         *slog.Logger
	clock       *machineClock
	alarm       *alarm
	connections *connections
	budget      atomic.Int64
	// nextCheck is when the goroutine of renewals checks the leases next, in microseconds; wakes counts how often it
	// was asked to check earlier.
	nextCheck atomic.Uint64
	wakes     atomic.Uint64
	plant     plant

	mu      sync.Mutex
	leases  map[LeaseID]*heldLease
	cluster *incarnation
	// anew: a member says that the cluster was restored, so the next hello does not name the incarnation that the client
	// knows.
	anew    bool
	closing bool
	// cleanups counts releases and revocations that continue in the background.
	cleanups int
	changed  chan struct{}

	// closed is done when Close is called; ended, when nothing of the client runs any more.
	closed chan struct{}
	ended  chan struct{}
	stop   context.CancelFunc
}

// An incarnation identifies one history of one cluster. Another one knows nothing of our leases, even if its numbers
// look the same.
type incarnation struct {
	cluster     uint64
	epoch       uint32
	incarnation uint64
}

// Open connects to a cluster. It returns once a member has answered, and fails with an [*UnavailableError] that lists
// what was tried, or with a [*RefusedError] if members refuse the credentials. The context bounds only the opening.
func Open(ctx context.Context, config Config) (*Client, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	clock := newMachineClock()
	alarm, err := newAlarm(clock)
	if err != nil {
		return nil, invalid("SETUP", "the client cannot be set up: %v", err)
	}
	c := &Client{
		config: config, log: config.Logger, clock: clock, alarm: alarm, plant: planted.From(ctx),
		leases: map[LeaseID]*heldLease{}, changed: make(chan struct{}),
		closed: make(chan struct{}), ended: make(chan struct{}),
	}
	c.budget.Store(budgetMax)
	c.connections = newConnections(c, config.Addresses)
	running, stop := context.WithCancel(context.Background())
	c.stop = stop
	go c.connections.run(running)
	go c.renewLeases()
	limited, cancel := context.WithTimeout(ctx, config.Timeout)
	defer cancel()
	began := time.Now()
	if _, err := c.connections.session(limited, false); err != nil {
		failed := c.noSession(time.Since(began))
		c.end()
		if ctx.Err() != nil {
			return nil, cancelled(ctx, EffectNone)
		}
		return nil, failed
	}
	return c, nil
}

// FromEnv connects to the cluster that TENURE_ADDR names, or else to one on this machine; see [ConfigFromEnv].
func FromEnv(ctx context.Context) (*Client, error) {
	config, err := ConfigFromEnv()
	if err != nil {
		return nil, err
	}
	return Open(ctx, config)
}

// Name returns the client's name, which other clients see.
func (c *Client) Name() string { return c.config.Name }

// Tried returns the addresses that were tried, with their outcomes.
func (c *Client) Tried() []Tried { return c.connections.triedNow() }

// Close closes the client: it takes no new requests for locks, ends those that wait, and waits until every guard is
// released and the cluster has acknowledged every release. Call it before the program ends.
//
// The caller stops its work and releases its guards; Close only waits for that. If the context ends first, it returns a
// [*StillHeldError] if guards exist, and an [*UnknownError] if a release was not acknowledged; what is not released ends
// with its lease. In every case nothing of the client runs afterwards.
func (c *Client) Close(ctx context.Context) error {
	defer c.end()
	began := time.Now()
	c.mu.Lock()
	if !c.closing {
		c.closing = true
		close(c.closed)
	}
	c.mu.Unlock()
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		used := false
		for _, lease := range c.heldLeases() {
			if lease.isIdle() {
				lease.revokeInBackground(ctx)
			} else {
				used = true
			}
		}
		c.mu.Lock()
		settled := !used && c.cleanups == 0
		c.mu.Unlock()
		if settled {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			var locks []string
			for _, lease := range c.heldLeases() {
				locks = append(locks, lease.inUse()...)
			}
			if len(locks) > 0 {
				return &StillHeldError{Locks: locks}
			}
			return &UnknownError{Waited: time.Since(began)}
		}
	}
}

// end stops everything of the client. Guards that still exist are lost: nothing renews them any more.
func (c *Client) end() {
	c.mu.Lock()
	select {
	case <-c.ended:
		c.mu.Unlock()
		return
	default:
		close(c.ended)
	}
	if !c.closing {
		c.closing = true
		close(c.closed)
	}
	c.mu.Unlock()
	for _, lease := range c.heldLeases() {
		lease.with(func(state *leaseState) { state.lose(loss{cause: CauseReleased}) })
	}
	c.stop()
	c.alarm.close()
}

func (c *Client) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// report wakes a Close that waits.
func (c *Client) report() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// cleanUp runs the rest of a release in the background, with the values of the caller's context. Close waits for it.
func (c *Client) cleanUp(ctx context.Context, rest func(ctx context.Context)) {
	c.mu.Lock()
	c.cleanups++
	c.mu.Unlock()
	go func() {
		rest(context.WithoutCancel(ctx))
		c.mu.Lock()
		c.cleanups--
		c.mu.Unlock()
		c.report()
	}()
}

// hello introduces the client, and names the leases that it wants notifications about.
func (c *Client) hello() clientMessage {
	leases := c.heldLeases()
	c.mu.Lock()
	defer c.mu.Unlock()
	hello := &wireHello{Client: c.config.Name}
	if c.cluster != nil {
		hello.ClusterID = decimal(c.cluster.cluster)
		if !c.anew {
			hello.Epoch, hello.Incarnation = c.cluster.epoch, decimal(c.cluster.incarnation)
		}
	}
	message := clientMessage{Hello: hello}
	if len(leases) > 0 {
		message.Resume = &wireLeases{}
		for _, lease := range leases[:min(len(leases), renewMax)] {
			message.Resume.Leases = append(message.Resume.Leases, decimal(lease.id))
		}
	}
	return message
}

// recognise checks that a member belongs to our cluster. A cluster that was restored since has ended all of our leases.
func (c *Client) recognise(welcome *wireWelcome) error {
	met := incarnation{
		cluster: uint64(welcome.Header.ClusterID), epoch: welcome.Epoch, incarnation: uint64(welcome.Incarnation),
	}
	c.mu.Lock()
	known := c.cluster
	switch {
	case known != nil && known.cluster != met.cluster:
		c.mu.Unlock()
		return errors.New("belongs to another cluster")
	case known != nil && known.epoch > met.epoch:
		c.mu.Unlock()
		return errors.New("belongs to the cluster as it was before it was restored")
	}
	c.cluster, c.anew = &met, false
	c.mu.Unlock()
	if known != nil && *known != met {
		c.forgetCluster()
	}
	return nil
}

// restored records that a member knows another incarnation of the cluster. The next welcome decides whether that is a
// newer one, in which every lease of before is gone, or an older one, which the client does not belong to.
func (c *Client) restored() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.anew = true
}

// forgetCluster ends every lease: the cluster was restored, and does not know them.
func (c *Client) forgetCluster() {
	for _, lease := range c.heldLeases() {
		now := c.clock.read()
		lease.with(func(state *leaseState) { state.ended(loss{cause: CauseGone}, now) })
	}
}

// heldLeases returns the leases that are held, in the order of their ids.
func (c *Client) heldLeases() []*heldLease {
	c.mu.Lock()
	defer c.mu.Unlock()
	leases := make([]*heldLease, 0, len(c.leases))
	for _, lease := range c.leases {
		leases = append(leases, lease)
	}
	slices.SortFunc(leases, func(a, b *heldLease) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return leases
}

// lockLost records the loss of a lock that the client did not release. ended are the leases that ended at the same time.
func (c *Client) lockLost(lost wireLost, ended []wireLeaseEnded) {
	lease := c.leaseOf(LeaseID(lost.Lease))
	if lease == nil {
		return
	}
	reason := lost.Reason
	// The cluster sends the reason of a revoke once, with the lease, and not with each of its locks.
	for _, whole := range ended {
		if whole.Lease == lost.Lease && reason == "" {
			reason = whole.Reason
		}
	}
	taken := loss{cause: causeOf(lost.Cause), by: lost.By, reason: reason}
	lease.with(func(state *leaseState) { state.taken(uint64(lost.Token), taken) })
}

// leaseEnded records the end of a lease.
func (c *Client) leaseEnded(ended wireLeaseEnded) {
	if lease := c.leaseOf(LeaseID(ended.Lease)); lease != nil {
		now := c.clock.read()
		over := loss{cause: causeOf(ended.Cause), by: ended.By, reason: ended.Reason}
		lease.with(func(state *leaseState) { state.ended(over, now) })
	}
}

func (c *Client) leaseOf(id LeaseID) *heldLease {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leases[id]
}

func (c *Client) String() string { return fmt.Sprintf("tenure.Client(%s)", c.config.Name) }
