// Watches locks and keys: every change exactly once and in order, across reconnects.

package tenure

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/url"
	"strconv"
	"time"
)

// An Event is one change of a lock, key or lease. Which fields are set depends on its cause.
type Event struct {
	// Cause says why: granted, released, expired, key_put and so on.
	Cause string
	// Lock or Key is what it is about.
	Lock string
	Key  string
	// Client, Lease and Token are those of the grant, wait or lease.
	Client string
	Lease  LeaseID
	Token  Token
	// Slot is the slot of a semaphore; nil for a plain lock.
	Slot *int
	// Value is the new value of a key, and Metadata the new metadata of a lock.
	Value    []byte
	Metadata []byte
	// By and Reason are who took a lock away or revoked a lease, and why.
	By     string
	Reason string
	// Previous is the value or metadata that was there before, with [WithPrevious].
	Previous []byte
	// At is when it happened by the wall clock of the leader of that moment. A label: no decision depends on it.
	At time.Time
}

// A Batch is all events of one revision that a watch admits.
type Batch struct {
	Revision Revision
	Events   []Event
}

// A WatchOption is an option of a watch.
type WatchOption func(*watchOptions)

type watchOptions struct {
	from     Revision
	previous bool
}

// FromRevision starts the watch at this revision. The default is now.
func FromRevision(revision Revision) WatchOption { return func(o *watchOptions) { o.from = revision } }

// WithPrevious includes the previous value in each event.
func WithPrevious() WatchOption { return func(o *watchOptions) { o.previous = true } }

// A Watch is a running watch: every change of some locks and keys, each exactly once, in order. It is for one goroutine.
type Watch struct {
	client *Client
	ctx    context.Context
	cancel context.CancelFunc
	query  url.Values
	// next is the next revision that has not been returned; zero while it is not known.
	next    Revision
	stream  *eventStream
	started bool
	over    bool
}

// Watch watches the lock and the key of this name, from now on. The context ends the watch.
func (c *Client) Watch(ctx context.Context, name string, options ...WatchOption) (*Watch, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	return c.watch(ctx, url.Values{"name": {name}}, options)
}

// WatchPrefix watches all locks and keys whose names start with prefix. An empty prefix matches everything.
func (c *Client) WatchPrefix(ctx context.Context, prefix string, options ...WatchOption) (*Watch, error) {
	return c.watch(ctx, url.Values{"prefix": {prefix}}, options)
}

func (c *Client) watch(ctx context.Context, query url.Values, options []WatchOption) (*Watch, error) {
	var o watchOptions
	for _, option := range options {
		option(&o)
	}
	if o.previous {
		query.Set("previous", "true")
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &Watch{client: c, ctx: ctx, cancel: cancel, query: query, next: o.from}
	// The watch begins before this returns, so that the caller misses nothing of what it does afterwards. The first event
	// says up to where everything is known; until it came, a broken stream begins anew.
	for {
		err := w.start()
		if err == nil {
			var event serverEvent
			if event, err = w.stream.next(); err == nil {
				_, err = w.take(event)
			} else {
				w.drop()
				w.started = false
				if sleep(ctx, streamPauseMin) && !c.isClosing() {
					continue
				}
			}
		}
		if err != nil {
			w.Close()
			return nil, err
		}
		return w, nil
	}
}

// start opens or resumes the stream.
func (w *Watch) start() error {
	query := w.query
	if w.next != 0 {
		query.Set("from", strconv.FormatUint(uint64(w.next), 10))
	}
	var passing []string
	if w.started {
		// The member may be behind the one that the watch was read from.
		passing = []string{"FUTURE_REVISION"}
	}
	stream, err := w.client.openStream(w.ctx, "/v1/watch?"+query.Encode(), passing...)
	if err != nil {
		return err
	}
	w.stream, w.started = stream, true
	return nil
}

func (w *Watch) drop() {
	if w.stream != nil {
		w.stream.close()
		w.stream = nil
	}
}

// Next returns the next revision that changed something. If the connection breaks, the watch resumes on another one
// where it was. If the history no longer reaches back there, Next returns a [*CompactedError].
//
// It returns an [*UnavailableError] if no member can be reached within the client's timeout; the next call goes on where
// the watch was. After any other error the watch is over.
func (w *Watch) Next() (Batch, error) {
	for {
		switch {
		case w.ctx.Err() != nil:
			w.Close()
			return Batch{}, cancelled(w.ctx, EffectNone)
		case w.over:
			return Batch{}, ErrClosed
		case w.stream == nil:
			if err := w.start(); err != nil {
				w.over = !errors.Is(err, ErrUnavailable)
				return Batch{}, err
			}
		}
		event, err := w.stream.next()
		if err != nil {
			w.drop()
			if w.client.isClosing() {
				w.over = true
				return Batch{}, ErrClosed
			}
			sleep(w.ctx, streamPauseMin)
			continue
		}
		batch, err := w.take(event)
		if err != nil {
			w.Close()
			return Batch{}, err
		}
		if batch != nil {
			return *batch, nil
		}
	}
}

// All returns the rest of the watch as an iterator. It ends after the first error that is not an [*UnavailableError].
//
//	for batch, err := range watch.All() { … }
func (w *Watch) All() iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		defer w.Close()
		for {
			batch, err := w.Next()
			if !yield(batch, err) || err != nil && !errors.Is(err, ErrUnavailable) {
				return
			}
		}
	}
}

// Close ends the watch.
func (w *Watch) Close() {
	w.over = true
	w.cancel()
	w.drop()
}

type wireChange struct {
	Revision decimal     `json:"revision"`
	Events   []wireEvent `json:"events"`
	// Of the events that end a stream: compacted, slow_consumer and closing.
	Floor  decimal    `json:"floor"`
	Resume decimal    `json:"resume"`
	Error  *wireError `json:"error"`
}

type wireEvent struct {
	Cause          string  `json:"cause"`
	At             string  `json:"at"`
	Lock           string  `json:"lock"`
	Key            string  `json:"key"`
	Client         string  `json:"client"`
	Lease          decimal `json:"lease"`
	Token          decimal `json:"token"`
	Slot           *uint32 `json:"slot"`
	Value          *string `json:"value"`
	ValueBase64    *string `json:"value_base64"`
	Metadata       *string `json:"metadata"`
	MetadataBase64 *string `json:"metadata_base64"`
	By             string  `json:"by"`
	Reason         string  `json:"reason"`
	Previous       *struct {
		Value       *string `json:"value"`
		ValueBase64 *string `json:"value_base64"`
	} `json:"previous"`
}

// take reads one event of the stream. It returns nil for one that tells of no change.
func (w *Watch) take(event serverEvent) (*Batch, error) {
	var change wireChange
	if err := json.Unmarshal([]byte(event.data), &change); err != nil {
		return nil, strange()
	}
	at := Revision(change.Revision)
	switch event.event {
	case "compacted":
		return nil, &CompactedError{Floor: Revision(change.Floor)}
	case "slow_consumer":
		// The stream ends here, and is resumed where the member says.
		w.next = max(w.next, Revision(change.Resume))
		w.drop()
		return nil, nil
	case "closing":
		w.drop()
		if change.Error == nil {
			return nil, nil
		}
		if meaning := change.Error.meaning(); !meaning.again && !meaning.doubt {
			return nil, meaning.err
		}
		return nil, nil
	case "progress":
		w.next = max(w.next, at+1)
		return nil, nil
	case "change":
	default:
		return nil, nil
	}
	// Revisions that were already returned are skipped, whatever a member sends.
	if at < w.next {
		return nil, nil
	}
	w.next = at + 1
	if len(change.Events) == 0 {
		return nil, nil
	}
	batch := change.batch()
	return &batch, nil
}

func (c *wireChange) batch() Batch {
	batch := Batch{Revision: Revision(c.Revision)}
	for _, it := range c.Events {
		batch.Events = append(batch.Events, it.event())
	}
	return batch
}

func (e wireEvent) event() Event {
	event := Event{
		Cause: e.Cause, Lock: e.Lock, Key: e.Key, Client: e.Client, Lease: LeaseID(e.Lease), Token: Token(e.Token),
		Slot: slotOf(e.Slot), Value: bytesOf(e.Value, e.ValueBase64), Metadata: bytesOf(e.Metadata, e.MetadataBase64),
		By: e.By, Reason: e.Reason,
	}
	if e.Previous != nil {
		event.Previous = bytesOf(e.Previous.Value, e.Previous.ValueBase64)
	}
	// An event without a readable time has none: it is a label.
	event.At, _ = time.Parse(time.RFC3339Nano, e.At)
	return event
}
