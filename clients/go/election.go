// Elects one of several clients as leader, and lets others observe who leads.

package tenure

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/url"
	"reflect"
)

// An Election is a lock whose metadata is the leader's value. Elections and locks share one namespace.
type Election struct {
	client *Client
	name   string
}

// Election returns the election of this name.
func (c *Client) Election(name string) *Election { return &Election{client: c, name: name} }

// A Leadership is the guard of an election, and the value that other clients see.
type Leadership struct {
	*Guard
}

// A Leader is the current leader of an election.
type Leader struct {
	// Client is the leader's client, and Value the value it leads with.
	Client string
	Value  []byte
	// Token is the fencing token of its grant, and Lease its lease.
	Token Token
	Lease LeaseID
}

// Campaign waits in the queue until this client leads, with a value for other clients to see.
func (e *Election) Campaign(ctx context.Context, value []byte, options ...LockOption) (*Leadership, error) {
	chosen, err := lockOptionsOf(allOf, []string{e.name}, options)
	if err != nil {
		return nil, err
	}
	chosen.metadata, chosen.election = value, true
	guard, err := e.client.acquire(ctx, nil, []string{e.name}, chosen)
	if err != nil {
		return nil, err
	}
	return &Leadership{Guard: guard}, nil
}

// Lead campaigns, runs work while this client leads, and resigns when work has returned; see [Client.Do].
func (e *Election) Lead(
	ctx context.Context, value []byte, work func(ctx context.Context, lead *Leadership) error, options ...LockOption,
) error {
	lead, err := e.Campaign(ctx, value, options...)
	if err != nil {
		return err
	}
	return lead.Do(ctx, func(ctx context.Context, _ *Guard) error { return work(ctx, lead) })
}

// Proclaim replaces the value that other clients see.
func (l *Leadership) Proclaim(ctx context.Context, value []byte) error { return l.Update(ctx, value) }

// Resign gives up leadership. The caller must have stopped its work.
func (l *Leadership) Resign(ctx context.Context) error { return l.Release(ctx) }

type wireElection struct {
	Leader *struct {
		Client      string  `json:"client"`
		Value       *string `json:"value"`
		ValueBase64 *string `json:"value_base64"`
		Token       decimal `json:"token"`
		Lease       decimal `json:"lease"`
	} `json:"leader"`
}

func (e wireElection) leader() *Leader {
	if e.Leader == nil {
		return nil
	}
	it := e.Leader
	return &Leader{
		Client: it.Client, Value: bytesOf(it.Value, it.ValueBase64), Token: Token(it.Token), Lease: LeaseID(it.Lease),
	}
}

func (e *Election) path() string { return "/v1/elections/" + pathOf(e.name) }

// pathOf escapes a name for a path; slashes stay.
func pathOf(name string) string { return (&url.URL{Path: "/" + name}).EscapedPath()[1:] }

// Leader returns the current leader, or nil if there is none.
func (e *Election) Leader(ctx context.Context) (*Leader, error) {
	if err := checkName(e.name); err != nil {
		return nil, err
	}
	var shown wireElection
	if err := e.client.askHTTP(ctx, "GET", e.path(), nil, &shown); err != nil {
		return nil, err
	}
	return shown.leader(), nil
}

// Observe tells the current leader, then each later change that the observer can still learn of; a nil leader means
// that no client leads. The context ends the observation. After an [*UnavailableError] it goes on; other errors end it.
//
//	for leader, err := range client.Election("billing").Observe(ctx) { … }
func (e *Election) Observe(ctx context.Context) iter.Seq2[*Leader, error] {
	return func(yield func(*Leader, error) bool) {
		if err := checkName(e.name); err != nil {
			yield(nil, err)
			return
		}
		o := observing{election: e}
		for {
			// The stream runs until it breaks; then it is opened again.
			err := o.run(ctx, yield)
			if err == nil {
				return
			}
			if ctx.Err() != nil {
				err = cancelled(ctx, EffectNone)
			} else if e.client.isClosing() {
				err = ErrClosed
			}
			if errors.Is(err, errBroken) {
				sleep(ctx, streamPauseMin)
				continue
			}
			if !yield(nil, err) || !errors.Is(err, ErrUnavailable) {
				return
			}
		}
	}
}

// errBroken: the connection of a stream ended, and it is opened again.
var errBroken = errors.New("the stream broke")

// An observing is one observation across reconnects.
type observing struct {
	election *Election
	told     bool
	last     *Leader
}

// run tells what one stream says. It returns nil if the caller wants no more.
func (o *observing) run(ctx context.Context, yield func(*Leader, error) bool) error {
	stream, err := o.election.client.openStream(ctx, o.election.path()+"?view=observe")
	if err != nil {
		return err
	}
	defer stream.close()
	for {
		event, err := stream.next()
		if err != nil {
			return errBroken
		}
		if event.event != "leader" && event.event != "vacant" {
			if event.event == "closing" {
				return errBroken
			}
			continue
		}
		var shown wireElection
		if err := json.Unmarshal([]byte(event.data), &shown); err != nil {
			return strange()
		}
		leader := shown.leader()
		// After a reconnect, the first event may repeat a change that was already told.
		if o.told && reflect.DeepEqual(leader, o.last) {
			continue
		}
		o.told, o.last = true, leader
		if !yield(leader, nil) {
			return nil
		}
	}
}
