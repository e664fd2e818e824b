// Reads what happened to locks, also from the archives of members.

package tenure

import (
	"context"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// historyPageMax is the most revisions in one answer of a member.
const historyPageMax = 1_000

// A Past is what is known of the past of some locks.
type Past struct {
	// Batches are the newest revisions that were asked for, the oldest first.
	Batches []Batch
	// ArchiveBegins is the revision from which on the member has the events of these locks; zero if it has no archive.
	ArchiveBegins Revision
	// ArchiveBeginsAt is the time of the first event from there on, by the wall clock of that moment's leader. It is zero
	// if there is none.
	ArchiveBeginsAt time.Time
	// Missing are the revisions that the member could not record. Another member may have them.
	Missing []MissingRevisions
}

// MissingRevisions are revisions that a member could not record.
type MissingRevisions struct {
	// From is the first of them, Next the one after the last.
	From, Next Revision
}

// A HistoryOption is an option of [Client.History] and [Client.HistoryPrefix].
type HistoryOption func(*historyOptions)

type historyOptions struct {
	query   url.Values
	newest  int
	refused *InvalidError
}

// Since returns only events since this time, by their labels.
func Since(time time.Time) HistoryOption { return atTime("since", time) }

// Until returns only events until this time, by their labels.
func Until(time time.Time) HistoryOption { return atTime("until", time) }

func atTime(name string, time time.Time) HistoryOption {
	return func(o *historyOptions) {
		if time.UnixMilli() < 0 {
			o.refused = invalid("INVALID_FIELD", "`%s` is before 1970", name)
			return
		}
		o.query.Set(name, strconv.FormatInt(time.UnixMilli(), 10))
	}
}

// OfClient returns only events of clients whose names begin with this text.
func OfClient(name string) HistoryOption {
	return func(o *historyOptions) { o.query.Set("client", name) }
}

// OnlyLosses returns only ends of holds that the holder did not ask for.
func OnlyLosses() HistoryOption { return func(o *historyOptions) { o.query.Set("lost", "true") } }

// Newest returns at most so many revisions, the newest ones. The default is 1,000.
func Newest(revisions int) HistoryOption {
	return func(o *historyOptions) {
		if revisions < 1 || revisions > math.MaxInt32 {
			o.refused = invalid("INVALID_FIELD", "a history cannot have %d revisions", revisions)
			return
		}
		o.newest = revisions
	}
}

// History returns what happened to a lock: its newest revisions, from the cluster and from the archive of the member that
// answers.
func (c *Client) History(ctx context.Context, lock string, options ...HistoryOption) (*Past, error) {
	if err := checkName(lock); err != nil {
		return nil, err
	}
	query := url.Values{"view": {"history"}, "archive": {"true"}}
	return c.history(ctx, "/v1/locks/"+pathOf(lock), query, options)
}

// HistoryPrefix returns what happened to all locks whose names start with prefix. An empty prefix matches every lock.
func (c *Client) HistoryPrefix(ctx context.Context, prefix string, options ...HistoryOption) (*Past, error) {
	query := url.Values{}
	if prefix != "" {
		if err := checkName(prefix); err != nil {
			return nil, err
		}
		query.Set("prefix", prefix)
	}
	return c.history(ctx, "/v1/history", query, options)
}

func (c *Client) history(ctx context.Context, path string, query url.Values, options []HistoryOption) (*Past, error) {
	o := historyOptions{query: query, newest: historyPageMax}
	for _, option := range options {
		option(&o)
	}
	if o.refused != nil {
		return nil, o.refused
	}
	past, before := &Past{}, decimal(math.MaxUint64)
	for {
		left := o.newest - len(past.Batches)
		query.Set("limit", strconv.Itoa(min(left, historyPageMax)))
		var page wireHistory
		if err := c.askHTTP(ctx, "GET", path+"?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		// A page has the newest revision first.
		for _, change := range page.Changes[:min(left, len(page.Changes))] {
			past.Batches = append(past.Batches, change.batch())
		}
		past.extend(page.Archive)
		if page.Before == nil || len(past.Batches) == o.newest {
			break
		}
		if *page.Before >= before {
			return nil, strange()
		}
		before = *page.Before
		query.Set("before", strconv.FormatUint(uint64(before), 10))
	}
	slices.Reverse(past.Batches)
	return past, nil
}

// extend takes over what one page says of the archive.
func (p *Past) extend(archive *wireArchive) {
	if archive == nil {
		return
	}
	p.ArchiveBegins = Revision(archive.Begins)
	// A time that cannot be read is none: it is a label.
	p.ArchiveBeginsAt, _ = time.Parse(time.RFC3339Nano, archive.BeginsAt)
	for _, hole := range archive.Holes {
		missing := MissingRevisions{From: Revision(hole.From), Next: Revision(hole.Next)}
		if !slices.Contains(p.Missing, missing) {
			p.Missing = append(p.Missing, missing)
		}
	}
}

type wireHistory struct {
	Changes []wireChange `json:"changes"`
	Before  *decimal     `json:"before"`
	Archive *wireArchive `json:"archive"`
}

type wireArchive struct {
	Begins   decimal `json:"begins"`
	BeginsAt string  `json:"begins_at"`
	Holes    []struct {
		From decimal `json:"from"`
		Next decimal `json:"next"`
	} `json:"holes"`
}
