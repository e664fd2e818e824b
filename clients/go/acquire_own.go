// Acquires locks with a new lease, which the same command grants.

package tenure

import (
	"context"
	"errors"
	"time"
)

// own acquires with a new lease.
func (w *waiting) own(ctx context.Context) (*Guard, error) {
	began := time.Now()
	reach := began.Add(w.client.config.Timeout)
	if !w.until.IsZero() && w.until.Add(slack).Before(reach) {
		reach = w.until.Add(slack)
	}
	for tries := 0; ; tries++ {
		guard, err := w.ownOnce(ctx, reach)
		// The first answer came too late to be of use: start again with a new lease, within the time of any other
		// request.
		if !errors.Is(err, errOutOfTime) {
			if tries > 0 && errors.Is(err, ErrUnavailable) {
				// This attempt was not sent, but an earlier one was.
				return nil, &UnknownError{Waited: time.Since(began)}
			}
			return guard, err
		}
		if time.Now().After(reach) || !w.client.spend() {
			return nil, &UnknownError{Waited: time.Since(began)}
		}
	}
}

// ownOnce asks under one lease id. It fails with errOutOfTime if the answer came too late to be relied on.
func (w *waiting) ownOnce(ctx context.Context, reach time.Time) (*Guard, error) {
	c := w.client
	timing, err := c.config.leaseTiming(w.options)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	pending := pendingGrant{timing: timing}
	// An answer after this leaves too little of the window to be of use.
	worthless := began.Add(timing.window * 3 / 4)
	id := newLeaseID()
	// The lease may be granted although its caller no longer waits; then it is given back.
	orphan := false
	defer func() {
		if orphan {
			c.giveBack(ctx, id)
		}
	}()
	request := w.options.request(w.locks, w.until)
	// A newer request of the group may have replaced this one. The key prevents that a repetition replaces the newer
	// request.
	var same identity
	if w.options.supersede != nil {
		same.key = newKey()
	}
	reached, cancel := context.WithDeadline(ctx, reach)
	defer cancel()
	useful, cancelUseful := context.WithDeadline(reached, worthless)
	defer cancelUseful()
	span := c.span(ctx)
	for tries := 0; ; tries++ {
		if c.isClosing() {
			return nil, ErrClosed
		}
		session, err := c.connections.session(reached, w.options.noWait())
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, cancelled(ctx, EffectNone)
		case err != nil && orphan:
			return nil, &UnknownError{Waited: time.Since(began)}
		case err != nil:
			return nil, c.noSession(time.Since(began))
		case time.Now().After(worthless):
			return nil, errOutOfTime
		}
		if c.plant == plantRetryWithoutID && tries > 0 {
			id = newLeaseID()
		}
		request.NewLease = &wireGrantLease{TTLMs: uint64(timing.ttl.Milliseconds()), Lease: decimal(id), Client: c.config.Name}
		// Read the clock before the send; a repetition under the same lease also counts from here.
		pending.sent(c.clock.read())
		asked := session.ask(same.on(wireRequest{Acquire: request, Traceparent: span}))
		if asked == nil {
			sleep(reached, askPauseMin)
			continue
		}
		orphan = true
		var said response
		select {
		case said = <-asked.responses:
		case <-c.closed:
			asked.drop()
			return nil, ErrClosed
		case <-useful.Done():
			asked.drop()
			if ctx.Err() != nil {
				return nil, cancelled(ctx, EffectNone)
			}
			session.suspect()
			return nil, errOutOfTime
		}
		update := w.read(said)
		if update.again {
			asked.drop()
			sleep(reached, max(jittered(askPauseMin), update.after))
			continue
		}
		if update.err != nil {
			asked.drop()
			orphan = false
			return nil, update.err
		}
		if update.over && w.options.supersede != nil {
			asked.drop()
			return nil, lostError(loss{cause: CauseGone}, "", 0)
		}
		if update.lease == nil {
			asked.drop()
			return nil, strange()
		}
		state, _ := pending.granted(c.clock.read())
		if state == nil {
			asked.drop()
			return nil, errOutOfTime
		}
		orphan = false
		w.held = newHeldLease(c, update.lease, state)
		granted := update.granted
		if granted == nil {
			w.queued, w.sent = true, true
			granted, err = w.stand(ctx, asked)
		} else {
			asked.drop()
		}
		if err != nil {
			// Whatever is left of the request ends with its lease.
			w.held.revokeInBackground(ctx)
			return nil, err
		}
		return newGuard(ctx, w.held, true, *granted)
	}
}
