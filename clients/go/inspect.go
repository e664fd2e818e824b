// Shows locks and their queues, takes locks away, and signs tickets: what operators and cautious resources need.

package tenure

import (
	"context"
	"iter"
	"net/url"
	"time"
)

// A LockInfo is a lock, its holders and how many wait.
type LockInfo struct {
	Lock    string
	Holders []HolderInfo
	Waiting int
	// Slots is how many slots it has; zero for a plain lock.
	Slots int
	// Modified is the revision at which its holders or metadata last changed.
	Modified Revision
}

// A HolderInfo is one grant in force.
type HolderInfo struct {
	Client string
	Token  Token
	Lease  LeaseID
	// Slot is the slot of a semaphore; nil for a plain lock.
	Slot *int
	// Mode is exclusive, shared or slot; State is held, cooling (revoking), delayed or resting.
	Mode     string
	State    string
	Election bool
	Held     time.Duration
	Metadata []byte
}

// An Explanation says who has a lock, who waits for it, and when it can be free.
type Explanation struct {
	// Lock is nil if no client holds or awaits it.
	Lock *LockInfo
	// Waiters are the first few clients in the queue.
	Waiters []string
	// FreeIfSilent is when it is free if its holders stop renewing; FreeAtLatest, whatever they do. Nil: not known.
	FreeIfSilent *time.Duration
	FreeAtLatest *time.Duration
}

func lockInfo(shown *wireLockShown) *LockInfo {
	if shown == nil {
		return nil
	}
	info := &LockInfo{
		Lock: shown.Lock, Waiting: shown.Waiting, Slots: int(shown.Slots), Modified: Revision(shown.Modified),
	}
	for _, it := range shown.Holders {
		info.Holders = append(info.Holders, HolderInfo{
			Client: it.Client, Token: Token(it.Token), Lease: LeaseID(it.Lease), Slot: slotOf(it.Slot), Mode: it.Mode,
			State: it.State, Election: it.Election, Held: milliseconds(it.HeldMs),
			Metadata: bytesOf(it.Metadata, it.MetadataBase64),
		})
	}
	return info
}

// Show returns a lock, or nil if no client holds or awaits it.
func (c *Client) Show(ctx context.Context, lock string) (*LockInfo, error) {
	if err := checkName(lock); err != nil {
		return nil, err
	}
	answer, err := c.call(ctx, wireRequest{GetLock: &wireTarget{Name: lock}}, identity{})
	if err != nil {
		return nil, err
	}
	if answer.Lock == nil {
		return nil, strange()
	}
	return lockInfo(answer.Lock.Lock), nil
}

// Explain returns who has a lock, who waits for it, and when it can be free.
func (c *Client) Explain(ctx context.Context, lock string) (*Explanation, error) {
	if err := checkName(lock); err != nil {
		return nil, err
	}
	answer, err := c.call(ctx, wireRequest{Explain: &wireWhich{Lock: lock}}, identity{})
	if err != nil {
		return nil, err
	}
	shown := answer.Explained
	if shown == nil {
		return nil, strange()
	}
	duration := func(ms *uint64) *time.Duration {
		if ms == nil {
			return nil
		}
		it := milliseconds(*ms)
		return &it
	}
	explanation := &Explanation{
		Lock: lockInfo(shown.Lock), FreeIfSilent: duration(shown.FreeIfSilentMs), FreeAtLatest: duration(shown.FreeAtLatestMs),
	}
	for _, waiter := range shown.Ahead {
		explanation.Waiters = append(explanation.Waiters, waiter.Client)
	}
	return explanation, nil
}

// Locks lists all locks whose names start with prefix, in the order of their names. It ends after an error.
func (c *Client) Locks(ctx context.Context, prefix string) iter.Seq2[LockInfo, error] {
	return func(yield func(LockInfo, error) bool) {
		after := ""
		for {
			var page struct {
				Locks []wireLockShown `json:"locks"`
				Next  string          `json:"next"`
			}
			query := url.Values{"prefix": {prefix}}
			if after != "" {
				query.Set("after", after)
			}
			if err := c.askHTTP(ctx, "GET", "/v1/locks?"+query.Encode(), nil, &page); err != nil {
				yield(LockInfo{}, err)
				return
			}
			for at := range page.Locks {
				if !yield(*lockInfo(&page.Locks[at]), nil) {
					return
				}
			}
			if after = page.Next; after == "" {
				return
			}
		}
	}
}

// A ForceOption is an option of [Client.Force].
type ForceOption func(*wireForce)

// Now takes the lock away at once, without letting the holder stop first. Only a fence protects the resource then.
func Now() ForceOption { return func(f *wireForce) { f.Now = true } }

// Force takes a lock away from the holder that has this token. The holder is told the reason and this client's name. The
// next holder waits until the holder has stopped, or until its lease would have ended.
func (c *Client) Force(ctx context.Context, lock string, token Token, reason string, options ...ForceOption) error {
	if err := checkName(lock); err != nil {
		return err
	}
	force := &wireForce{Lock: lock, Token: decimal(token), Reason: reason, By: c.config.Name}
	for _, option := range options {
		option(force)
	}
	answer, err := c.call(ctx, wireRequest{Force: force}, identity{key: newKey()})
	if err != nil {
		return err
	}
	if answer.Forced == nil {
		return strange()
	}
	return nil
}

// Revoke ends another client's lease. The holder is told the reason and this client's name; its locks pass on when it
// has stopped, or when the lease would have ended.
func (c *Client) Revoke(ctx context.Context, lease LeaseID, reason string) error {
	revoke := &wireRevoke{Lease: decimal(lease), Reason: &reason, By: c.config.Name}
	answer, err := c.call(ctx, wireRequest{Revoke: revoke}, identity{key: newKey()})
	if err != nil {
		return err
	}
	if answer.Revoked == nil {
		return strange()
	}
	return nil
}

// Ticket returns a signed proof of the grant, a compact JWT, for resources that do not believe a bare token.
func (g *Guard) Ticket(ctx context.Context) (string, error) {
	if err := g.Check(); err != nil {
		return "", err
	}
	lock := g.Locks()[0]
	ask := wireHold{Lock: lock.Name, Lease: decimal(g.hold.lease.id), Token: decimal(lock.Token)}
	var signed struct {
		Ticket string `json:"ticket"`
	}
	if err := g.hold.lease.client.askHTTP(ctx, "POST", "/v1/tickets", ask, &signed); err != nil {
		return "", err
	}
	return signed.Ticket, nil
}
