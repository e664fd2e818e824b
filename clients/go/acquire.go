// Turns a lock request into a guard, across as many sessions as it takes.
//
// A request queues in the cluster, not on a session. When a session ends, the client repeats the request on the next
// one, under the same number or the same lease, and the cluster answers with its current state. A notification saves a
// query; only the answer is authoritative.

package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// askPauseMin is the pause after a session ended or a member could not serve; repeated pauses grow up to askPauseMax.
	askPauseMin = 20 * time.Millisecond
	askPauseMax = 500 * time.Millisecond
	// deniedMax is how long members must refuse the credentials before a request that waits is given up.
	deniedMax = time.Second
	// slack: the cluster ends a wait by itself. The client waits this much longer for the cluster's word, and then ends
	// it.
	slack = 50 * time.Millisecond
	// atOnceMax is how long a request that does not queue waits for its answer: longer than a change of leader takes.
	atOnceMax = 3 * time.Second
)

// errOutOfTime ends a wait by the client's own clock.
var errOutOfTime = errors.New("out of time")

// A waiting is one request for locks that stands in the cluster.
type waiting struct {
	client  *Client
	locks   []string
	options lockOptions
	// until is when the wait is over; the zero time for no limit.
	until time.Time
	held  *heldLease
	// isOwn: the lease exists for this request alone, and is given up together with it.
	isOwn bool
	// seq is the number of the request that may have been sent. A request with a lease of its own needs none.
	seq     *seq
	request *wireAcquire
	sent    bool
	queued  bool
}

// A grantedAt is what was granted, and a revision at which it was held.
type grantedAt struct {
	locks    []GrantedLock
	revision uint64
}

// acquire acquires locks under an existing lease, or with a new one that the same command grants.
func (c *Client) acquire(ctx context.Context, held *heldLease, locks []string, options lockOptions) (*Guard, error) {
	if c.isClosing() {
		return nil, ErrClosed
	}
	if ctx.Err() != nil {
		return nil, cancelled(ctx, EffectNone)
	}
	w := c.waiting(held, locks, options)
	var guard *Guard
	var err error
	if held != nil {
		guard, err = w.under(ctx)
	} else {
		guard, err = w.own(ctx)
	}
	if err != nil {
		c.log.Debug("not acquired", "locks", locks, "error", err)
		return nil, err
	}
	c.log.Debug("acquired", "locks", locks, "token", uint64(guard.Token()))
	if options.fence != nil {
		return guard.raised(ctx, options.fence)
	}
	return guard, nil
}

// waiting begins a request, whose time counts from now. Without a lease it gets one of its own.
func (c *Client) waiting(held *heldLease, locks []string, options lockOptions) *waiting {
	w := &waiting{client: c, locks: locks, options: options, held: held, isOwn: held == nil}
	switch {
	case options.noWait():
		w.until = time.Now().Add(min(atOnceMax, c.config.Timeout))
	case options.wait != nil:
		w.until = time.Now().Add(*options.wait)
	}
	return w
}

// limited returns a context that also ends when the wait is over, with errOutOfTime as its cause.
func (w *waiting) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.until.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, w.until.Add(slack), errOutOfTime)
}

// under acquires under the existing lease.
func (w *waiting) under(ctx context.Context) (*Guard, error) {
	taken, err := w.enterLocalQueues(ctx)
	if err != nil {
		return nil, err
	}
	give := func() {
		for _, lock := range taken {
			w.held.freeLocalQueue(lock)
		}
	}
	granted, err := w.stand(ctx, nil)
	if err == nil {
		// What was not granted is free again. The guard frees the rest when it ends, also if it cannot be relied on.
		isGranted := func(lock string) bool {
			return slices.ContainsFunc(granted.locks, func(it GrantedLock) bool { return it.Name == lock })
		}
		taken = slices.DeleteFunc(taken, isGranted)
		give()
		return newGuard(ctx, w.held, false, *granted)
	}
	// Drop the number first: what is sent from here on tells the cluster that the request was abandoned, if it still
	// arrives.
	if w.seq != nil {
		w.seq.done()
	}
	if !w.mayStand(err) {
		give()
		return nil, err
	}
	// The request may still stand in the cluster. If the leave fails, its place ends with its lease.
	w.client.cleanUp(ctx, func(ctx context.Context) {
		defer give()
		if err := w.leave(ctx); err != nil {
			w.client.log.Debug("cannot leave a queue; the place ends with its lease", "locks", w.locks, "error", err)
		}
	})
	return nil, err
}

// mayStand returns whether a request that failed may still stand in the cluster. A refused one is over.
func (w *waiting) mayStand(err error) bool {
	var refused *RefusedError
	return w.sent && (!errors.As(err, &refused) || refused.Reason == "WAIT_TIMEOUT")
}

// enterLocalQueues waits for the local queues of the locks, in the order of their names.
func (w *waiting) enterLocalQueues(ctx context.Context) (taken []string, err error) {
	limited, cancel := w.limited(ctx)
	defer cancel()
	for _, lock := range slices.Compact(slices.Sorted(slices.Values(w.locks))) {
		if err := w.held.enterLocalQueue(limited, lock, !w.options.noWait()); err != nil {
			for _, lock := range taken {
				w.held.freeLocalQueue(lock)
			}
			switch {
			case ctx.Err() != nil:
				return nil, cancelled(ctx, EffectNone)
			case limited.Err() != nil:
				return nil, &RefusedError{Reason: "WAIT_TIMEOUT", Message: "timed out waiting for the lock", Lock: lock}
			}
			return nil, err
		}
		taken = append(taken, lock)
	}
	return taken, nil
}

// leave leaves the queues, and releases what was granted meanwhile. If any of the locks was enough, each may be the one
// that was granted; otherwise the first one stands for all of them.
func (w *waiting) leave(ctx context.Context) error {
	locks := w.locks[:1]
	if w.options.choice == anyOf {
		locks = w.locks
	}
	for _, lock := range locks {
		if there, err := w.leaveOne(ctx, lock); there || err != nil {
			return err
		}
	}
	return nil
}

// leaveOne returns whether there was a place in the queue of this lock, or a hold of it, to give up.
func (w *waiting) leaveOne(ctx context.Context, lock string) (bool, error) {
	answer, err := w.held.numbered(ctx, wireRequest{Leave: &wireWhich{Lock: lock, Lease: decimal(w.held.id)}})
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		return false, nil
	case err != nil:
		return false, err
	case answer.Left == nil:
		return false, strange()
	}
	for _, hold := range answer.Left.Held {
		err = errors.Join(err, w.held.release(ctx, hold.Lock, uint64(hold.Token)))
	}
	return true, err
}

// stand waits until the request is granted, refused or given up. asked is where it was already sent or queued.
func (w *waiting) stand(ctx context.Context, asked *ask) (*grantedAt, error) {
	c, began := w.client, time.Now()
	limited, cancel := w.limited(ctx)
	defer cancel()
	pause := askPauseMin
	var deniedSince time.Time
	for {
		if asked == nil {
			var err error
			asked, err = w.askAgain(limited)
			if err != nil {
				switch {
				case limited.Err() != nil:
					return nil, w.outOfTime(ctx, began)
				case w.held.lost.isFired():
					return nil, context.Cause(w.held.lost.ctx)
				case c.isClosing():
					return nil, ErrClosed
				case w.options.noWait() && !w.sent:
					return nil, c.noSession(time.Since(began))
				}
				// Credentials that are being replaced may be right a moment later.
				if denied := c.connections.deniedBy(); denied == nil {
					deniedSince = time.Time{}
				} else if deniedSince.IsZero() {
					deniedSince = time.Now()
				} else if time.Since(deniedSince) >= deniedMax {
					return nil, denied
				}
				sleep(limited, askPauseMin)
				continue
			}
			deniedSince = time.Time{}
		}
		var said response
		select {
		case said = <-asked.responses:
		case <-c.closed:
			asked.drop()
			return nil, ErrClosed
		case <-w.held.lost.ctx.Done():
			asked.drop()
			return nil, context.Cause(w.held.lost.ctx)
		case <-limited.Done():
			asked.drop()
			return nil, w.outOfTime(ctx, began)
		}
		update := w.read(said)
		switch {
		case update.again:
			asked.drop()
			asked = nil
			sleep(limited, max(jittered(pause), update.after))
			pause = min(pause*2, askPauseMax)
		case update.err != nil:
			asked.drop()
			return nil, update.err
		case update.over && w.until.IsZero():
			asked.drop()
			return nil, lostError(loss{cause: CauseGone}, "", 0)
		case update.over:
			asked.drop()
			return nil, &RefusedError{Reason: "WAIT_TIMEOUT", Message: "timed out waiting for the lock", Lock: w.locks[0]}
		case update.granted != nil:
			asked.drop()
			if w.seq != nil {
				w.seq.done()
			}
			return update.granted, nil
		default:
			// The request is answered: it is queued. Drop its number: keeping it for the whole wait would block all
			// later ones. A repetition under another number keeps the place in the queue.
			if w.seq != nil {
				w.seq.done()
				w.seq = nil
			}
			w.queued = true
			pause = askPauseMin
		}
	}
}

// askAgain sends the request on the current session, once there is one.
func (w *waiting) askAgain(ctx context.Context) (*ask, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The wait for a session also ends with the lease and with the client.
	defer context.AfterFunc(w.held.lost.ctx, cancel)()
	session, err := w.client.connections.session(ctx, w.options.noWait())
	if err != nil {
		return nil, err
	}
	request := wireRequest{Traceparent: w.client.span(ctx)}
	// A request that was queued and replaced by a newer one of its group must not replace that one.
	resume := w.queued && w.options.supersede != nil
	if w.isOwn {
		request.Acquire = w.options.request(w.locks, w.until)
		request.Acquire.Lease, request.Acquire.Resume = decimal(w.held.id), resume
	} else {
		if w.seq != nil && w.client.plant == plantRetryWithoutID {
			w.seq.done()
			w.seq = nil
		}
		if w.seq == nil {
			if w.seq, err = w.held.seqs.next(ctx); err != nil {
				return nil, err
			}
			w.request = w.options.request(w.locks, w.until)
			w.request.Lease, w.request.Resume = decimal(w.held.id), resume
		}
		// A repetition under the same number must be identical.
		request.Acquire = w.request
		request.Seq, request.Done = w.seq.numbers()
	}
	asked := session.ask(request)
	if asked == nil {
		return nil, errNoSession
	}
	w.sent = true
	return asked, nil
}

// outOfTime is the error when the caller's context, or the time to wait, is over. The client leaves the queue in the
// background, and releases what may have been granted meanwhile.
func (w *waiting) outOfTime(ctx context.Context, began time.Time) error {
	switch {
	case ctx.Err() != nil:
		return cancelled(ctx, EffectNone)
	case !w.sent:
		return w.client.noSession(time.Since(began))
	case w.queued:
		return &RefusedError{Reason: "WAIT_TIMEOUT", Message: "timed out waiting for the lock", Lock: w.locks[0]}
	}
	return &UnknownError{Waited: time.Since(began)}
}

// An askUpdate is the outcome of a message about a request; without any of its fields, the request is queued.
type askUpdate struct {
	lease   *wireLeaseGranted
	granted *grantedAt
	// over: the wait is over without a grant.
	over bool
	err  error
	// again: the outcome is not known, and the request is sent again.
	again bool
	after time.Duration
}

func (w *waiting) read(said response) askUpdate {
	switch {
	case said.gone:
		return askUpdate{again: true}
	case said.waitEnded != nil:
		return said.waitEnded.read()
	case said.granted != nil:
		it := said.granted
		return askUpdate{granted: w.grant(it.Lock, it.Token, it.Slot, it.Locks, it.Revision)}
	}
	answer := said.answer
	switch {
	case answer.Acquired != nil:
		it := answer.Acquired
		return askUpdate{lease: it.Lease, granted: w.grant(w.locks[0], it.Token, it.Slot, it.Locks, answer.Revision)}
	case answer.Queued != nil:
		w.client.log.Debug("queued", "locks", w.locks, "ahead", answer.Queued.Ahead)
		if w.options.onQueued != nil {
			w.options.onQueued(answer.Queued.Ahead)
		}
		return askUpdate{lease: answer.Queued.Lease}
	case answer.Ended != nil:
		return askUpdate{over: true}
	case answer.Error != nil:
		return answer.Error.read()
	}
	return askUpdate{err: strange()}
}

// read reads the end of a wait: replaced by a newer request of its group, refused, or out of time.
func (e *wireWaitEnded) read() askUpdate {
	switch {
	case e.SupersededBy != "":
		message := fmt.Sprintf("superseded by a newer request of %s, lease %d", e.SupersededBy, e.SupersededByLease)
		return askUpdate{err: &RefusedError{Reason: "SUPERSEDED", Message: message, effect: EffectNone}}
	case e.Error != nil:
		return e.Error.read()
	}
	return askUpdate{over: true}
}

// read reads an error as the outcome of a request for locks.
func (e *wireError) read() askUpdate {
	meaning := e.meaning()
	if meaning.again || meaning.doubt {
		return askUpdate{again: true, after: meaning.after}
	}
	return askUpdate{err: meaning.err}
}

// grant reads the locks of a grant: a single one stands alone, several are in a list.
func (w *waiting) grant(
	lock string, token decimal, slot *uint32, several []wireHolding, revision decimal,
) *grantedAt {
	granted := &grantedAt{revision: uint64(revision)}
	if len(several) == 0 {
		several = []wireHolding{{Lock: lock, Token: token, Slot: slot}}
	}
	for _, it := range several {
		granted.locks = append(granted.locks, GrantedLock{Name: it.Lock, Token: Token(it.Token), Slot: slotOf(it.Slot)})
	}
	return granted
}

func slotOf(slot *uint32) *int {
	if slot == nil {
		return nil
	}
	number := int(*slot)
	return &number
}
