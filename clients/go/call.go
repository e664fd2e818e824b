// Sends requests until they are answered, under one identity across reconnects and changes of leader.

package tenure

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"
)

const (
	// memberMax is how long a member may look for a leader before it reports that it knows none.
	memberMax = 9 * time.Second
	// The pause between attempts grows from the first value to the second.
	callPauseMin = 10 * time.Millisecond
	callPauseMax = 500 * time.Millisecond
	// The retry budget, in tenths of a retry. Each answer earns one tenth back, so that retries add at most a tenth to
	// the load of a cluster in trouble.
	budgetMax = 1_000
	retryCost = 10
)

// An identity is how the cluster recognises a request that is sent again. The zero value is for requests of which
// applying one twice has the effect of applying it once.
type identity struct {
	// key is remembered by the cluster, for requests without a lease.
	key string
	// seq is the number of the request under its lease.
	seq *seq
}

func (i identity) on(request wireRequest) wireRequest {
	request.IdempotencyKey = i.key
	if i.seq != nil {
		request.Seq, request.Done = i.seq.numbers()
	}
	return request
}

// newKey returns a new random key for a request.
func newKey() string {
	var bytes [16]byte
	// It never fails: the package crashes the program if the system has no randomness.
	_, _ = rand.Read(bytes[:])
	return hex.EncodeToString(bytes[:])
}

// A calling is one request and how it is repeated.
type calling struct {
	request wireRequest
	id      identity
	// within bounds the call; zero for the client's timeout.
	within time.Duration
	// doubted is set if an unanswered attempt may have taken effect before the one that was answered.
	doubted bool
}

// call sends a request until it is answered, or until it is known that no answer will come.
func (c *Client) call(ctx context.Context, request wireRequest, id identity) (*wireAnswer, error) {
	return c.do(ctx, &calling{request: request, id: id})
}

func (c *Client) do(ctx context.Context, it *calling) (*wireAnswer, error) {
	within := it.within
	if within == 0 {
		within = c.config.Timeout
	}
	began := time.Now()
	until := began.Add(within)
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	// An unanswered query changed nothing, however often it was sent.
	question := it.request.isQuestion()
	var newest error
	// givenUp is the error if no further attempt is made.
	givenUp := func() error {
		doubt := it.doubted && !question
		switch {
		case ctx.Err() != nil && doubt:
			return cancelled(ctx, EffectUnknown)
		case ctx.Err() != nil:
			return cancelled(ctx, EffectNone)
		case doubt:
			return &UnknownError{RequestID: it.id.key, Waited: time.Since(began)}
		case newest != nil:
			return newest
		}
		return c.noSession(time.Since(began))
	}
	pause := callPauseMin
	span := c.span(ctx)
	for tries := 1; ; tries++ {
		session, err := c.connections.session(limited, false)
		if err != nil {
			return nil, givenUp()
		}
		request := it.id.on(it.request)
		request.Traceparent = span
		if c.plant == plantRetryWithoutID && tries > 1 && it.id.key != "" {
			request.IdempotencyKey = newKey()
		}
		request.DeadlineMs = uint32(max(millis(min(time.Until(until), memberMax)), 1))
		asked := session.ask(request)
		if asked == nil {
			if !sleep(limited, callPauseMin) {
				return nil, givenUp()
			}
			continue
		}
		after := time.Duration(0)
		var said response
		select {
		case said = <-asked.responses:
		case <-limited.Done():
			it.doubted = true
			asked.drop()
			session.suspect()
			return nil, givenUp()
		}
		asked.drop()
		switch {
		case said.gone:
			it.doubted = true
		case said.answer == nil:
			return nil, strange()
		case said.answer.Error == nil:
			c.earn()
			return said.answer, nil
		default:
			meaning := said.answer.Error.meaning()
			switch {
			case meaning.doubt:
				it.doubted = true
			case meaning.again:
				after, newest = meaning.after, meaning.err
			default:
				c.earn()
				return nil, meaning.err
			}
		}
		// Every request here may be sent again: the cluster recognises it, or it is harmless to repeat. The first retry
		// is free, because a change of leader needs it. Further ones draw on the budget.
		wait := max(jittered(pause), after)
		if time.Now().Add(wait).After(until) || tries > 1 && !c.spend() {
			return nil, givenUp()
		}
		if !sleep(limited, wait) {
			return nil, givenUp()
		}
		pause = min(pause*2, callPauseMax)
	}
}

// unasked is the context of requests that no caller asked for. They belong to no span.
var unasked = context.WithValue(context.Background(), unaskedKey{}, true)

type unaskedKey struct{}

// span returns the caller's span, if the client is told of it.
func (c *Client) span(ctx context.Context) string {
	if c.config.Traceparent == nil || ctx.Value(unaskedKey{}) != nil {
		return ""
	}
	return c.config.Traceparent(ctx)
}

// noSession is the error of a request for which there is no session.
func (c *Client) noSession(waited time.Duration) error {
	if denied := c.connections.deniedBy(); denied != nil {
		return denied
	}
	select {
	case <-c.ended:
		return ErrClosed
	default:
	}
	return &UnavailableError{Waited: waited, Tried: c.connections.triedNow()}
}

func (c *Client) earn() {
	if c.budget.Load() < budgetMax {
		c.budget.Add(1)
	}
}

// spend takes one retry from the budget, if any is left.
func (c *Client) spend() bool {
	if c.budget.Add(-retryCost) < 0 {
		c.budget.Add(retryCost)
		return false
	}
	return true
}

// sleep waits, and returns false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
