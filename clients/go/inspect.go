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
	// Slots is how many slots it has; zero for a plain lock. Sized: an operator set that number, so that the numbers in
	// requests do not count.
	Slots int
	Sized bool
	// Created is the revision since which it exists, Modified that at which its holders or metadata last changed.
	Created  Revision
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
	// Left is for how much longer at most the lock is cooling, delayed or resting; nil while it is held.
	Left *time.Duration
	// Renewed is how long ago its lease was renewed; nil once the lease has ended.
	Renewed  *time.Duration
	Metadata []byte
	// LockDelay and MinHold are zero without one; MaxHold is nil without a limit.
	LockDelay time.Duration
	MinHold   time.Duration
	MaxHold   *time.Duration
	// Progress is nil if the holder promised none.
	Progress *ProgressInfo
}

// A ProgressInfo is how far the work under a lock has come, and when it must have come further.
type ProgressInfo struct {
	// Number is the largest number reported; zero before the first.
	Number uint64
	// Within is within how much time a larger one must follow, and Left in how much time it is due.
	Within time.Duration
	Left   time.Duration
	// Still is how long ago the number was reported; before the first one, how long ago the lock was granted.
	Still time.Duration
}

func lockInfo(shown *wireLockShown) *LockInfo {
	if shown == nil {
		return nil
	}
	info := &LockInfo{
		Lock: shown.Lock, Waiting: shown.Waiting, Slots: int(shown.Slots), Sized: shown.Sized,
		Created: Revision(shown.Created), Modified: Revision(shown.Modified),
	}
	for _, it := range shown.Holders {
		holder := HolderInfo{
			Client: it.Client, Token: Token(it.Token), Lease: LeaseID(it.Lease), Slot: slotOf(it.Slot), Mode: it.Mode,
			State: it.State, Election: it.Election, Held: milliseconds(it.HeldMs), Left: durationOf(it.LeftMs),
			Renewed: durationOf(it.RenewedMs), Metadata: bytesOf(it.Metadata, it.MetadataBase64),
			LockDelay: milliseconds(it.LockDelayMs), MinHold: milliseconds(it.MinHoldMs), MaxHold: durationOf(it.MaxHoldMs),
		}
		if progress := it.Progress; progress != nil {
			holder.Progress = &ProgressInfo{
				Number: uint64(progress.Number), Within: milliseconds(progress.WithinMs),
				Left: milliseconds(progress.LeftMs), Still: milliseconds(progress.StillMs),
			}
		}
		info.Holders = append(info.Holders, holder)
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

// A ForceOption is an option of [Client.Force] and [Client.Revoke].
type ForceOption func(*forceOptions)

type forceOptions struct {
	now bool
	by  string
}

// Now takes what is held away at once, without letting the holder stop first. Only a fence protects the resource then.
func Now() ForceOption { return func(o *forceOptions) { o.now = true } }

// By names who decided it, for the record and for the holder; the client's own name without it.
func By(name string) ForceOption { return func(o *forceOptions) { o.by = name } }

func (c *Client) forceOptions(options []ForceOption) forceOptions {
	o := forceOptions{by: c.config.Name}
	for _, option := range options {
		option(&o)
	}
	return o
}

// Force takes a lock away from the holder that has this token. The holder is told the reason and this client's name. The
// next holder waits until the holder has stopped, or until its lease would have ended: Force returns for how long at most,
// which is zero with [Now].
func (c *Client) Force(
	ctx context.Context, lock string, token Token, reason string, options ...ForceOption,
) (remaining time.Duration, err error) {
	if err := checkName(lock); err != nil {
		return 0, err
	}
	o := c.forceOptions(options)
	force := &wireForce{Lock: lock, Token: decimal(token), Reason: reason, By: o.by, Now: o.now}
	answer, err := c.call(ctx, wireRequest{Force: force}, identity{key: newKey()})
	if err != nil {
		return 0, err
	}
	if answer.Forced == nil {
		return 0, strange()
	}
	return milliseconds(answer.Forced.LeftMs), nil
}

// Revoke ends another client's lease. The holder is told the reason and this client's name; its locks pass on when it
// has stopped, or when the lease would have ended.
func (c *Client) Revoke(ctx context.Context, lease LeaseID, reason string, options ...ForceOption) error {
	o := c.forceOptions(options)
	revoke := &wireRevoke{Lease: decimal(lease), Reason: &reason, By: o.by, Now: o.now}
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
