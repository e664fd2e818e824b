// Package leaderelection lets client-go's leader election run on a Tenure lock instead of a Lease object.
//
// A [Lock] is a resourcelock.Interface for leaderelection.LeaderElectionConfig, and for the option
// LeaderElectionResourceLockInterface of a controller-runtime manager. The record that the elector keeps is the
// metadata of the lock's holder; the elector that holds the lock is the leader, and every leadership has a fencing
// token.
//
// The elector stops leading within RenewDeadline after its last successful renewal. The lock's ttl is derived from that
// time, so that the cluster cannot pass the lock on before.
package leaderelection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ttlFactor is how many RenewDeadlines a lease lives. A renewal of the record succeeds up to half a ttl after the newest
// renewal of the lease was sent, and the elector may lead for one RenewDeadline from then on. Together that must be less
// than a ttl, for clocks that differ by a few percent: 1/2 + 1/2.5 of it.
const ttlFactor = 2.5

// Config says which lock an elector competes for.
type Config struct {
	// Client is the connection to the cluster.
	Client *tenure.Client
	// Name is the lock's name, and Identity that of this candidate: the host name and something unique.
	Name     string
	Identity string
	// RenewDeadline is that of the LeaderElectionConfig, or longer.
	RenewDeadline time.Duration
	// Recorder gets an event for each change of leader, if it is not nil.
	Recorder func(event string)
}

// A Lock is a Tenure lock in the form that client-go's leader election uses.
type Lock struct {
	config   Config
	election *tenure.Election

	mu   sync.Mutex
	lead *tenure.Leadership
	// refuseUntil: a lost leadership is not taken up again before the elector has stopped.
	refuseUntil time.Time
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns a lock for one elector.
func New(config Config) (*Lock, error) {
	switch {
	case config.Client == nil:
		return nil, errors.New("leaderelection: a client is needed")
	case config.Name == "" || config.Identity == "":
		return nil, errors.New("leaderelection: a name and an identity are needed")
	case config.RenewDeadline < time.Second:
		return nil, fmt.Errorf("leaderelection: RenewDeadline %v is less than a second", config.RenewDeadline)
	}
	return &Lock{config: config, election: config.Client.Election(config.Name)}, nil
}

// Identity returns the identity of this candidate.
func (l *Lock) Identity() string { return l.config.Identity }

// Describe names the lock, for logs.
func (l *Lock) Describe() string { return "tenure/" + l.config.Name }

// RecordEvent passes an event on.
func (l *Lock) RecordEvent(event string) {
	if l.config.Recorder != nil {
		l.config.Recorder(fmt.Sprintf("%s %s", l.config.Identity, event))
	}
}

// Token returns the fencing token of this candidate's leadership, and whether it leads. Pass it to what the leader
// writes to.
func (l *Lock) Token() (tenure.Token, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lead == nil || l.lead.Check() != nil {
		return 0, false
	}
	return l.lead.Token(), true
}

// Get returns the record of the present leader.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	info, err := l.config.Client.Show(ctx, l.config.Name)
	if err != nil {
		return nil, nil, err
	}
	if info == nil || len(info.Holders) == 0 {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "locks"}, l.config.Name)
	}
	holder, record := info.Holders[0], &resourcelock.LeaderElectionRecord{}
	if err := json.Unmarshal(holder.Metadata, record); err != nil {
		// The holder is no elector. It leads nevertheless.
		return &resourcelock.LeaderElectionRecord{HolderIdentity: holder.Client}, holder.Metadata, nil
	}
	return record, holder.Metadata, nil
}

// Create tries to become the leader.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

// Update renews the record of the leader, or tries to become the leader. With an empty holder it resigns.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lead == nil {
		return l.campaign(ctx, record, value)
	}
	if record.HolderIdentity == "" {
		lead := l.lead
		l.lead = nil
		return lead.Resign(ctx)
	}
	if err := l.lead.Proclaim(ctx, value); err != nil {
		return l.lost(err)
	}
	// What counts is that the lock can be relied on now, not that the cluster has answered at some time.
	return l.lost(l.lead.Check())
}

func (l *Lock) campaign(ctx context.Context, record resourcelock.LeaderElectionRecord, value []byte) error {
	if record.HolderIdentity != l.config.Identity {
		return fmt.Errorf("leaderelection: %s does not lead", l.config.Identity)
	}
	if time.Now().Before(l.refuseUntil) {
		return fmt.Errorf("leaderelection: %s has lost `%s` and has to stop first", l.config.Identity, l.config.Name)
	}
	ttl := time.Duration(float64(l.config.RenewDeadline) * ttlFactor)
	lead, err := l.election.Campaign(ctx, value, tenure.NoWait(), tenure.TTL(ttl))
	if err == nil {
		l.lead = lead
	}
	return err
}

// lost gives a lost leadership up, and passes the error on.
func (l *Lock) lost(err error) error {
	if l.lead.Check() == nil {
		return err
	}
	lead := l.lead
	l.lead = nil
	// The elector leads for so long at most; then its work has stopped, and the cluster is told.
	l.refuseUntil = time.Now().Add(l.config.RenewDeadline)
	time.AfterFunc(l.config.RenewDeadline, func() {
		ctx, cancel := context.WithTimeout(context.Background(), l.config.RenewDeadline)
		defer cancel()
		// It reports the loss, which is known, or that the cluster cannot be told: then the lease runs out.
		_ = lead.Resign(ctx)
	})
	return err
}
