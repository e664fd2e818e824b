// Sets how many slots a semaphore has, and closes prefixes to new grants: what operators do to locks in use.

package tenure

import (
	"context"
	"math"
	"time"
)

// A Drain is a prefix that is closed to new grants.
type Drain struct {
	// Prefix is empty if it is that of every lock.
	Prefix string
	// Since is how long ago it was closed.
	Since time.Duration
	// By is the name that the operator gave, Principal the authenticated caller, Reason what was given; each may be
	// empty.
	By, Principal, Reason string
	// Created is the revision that closed it.
	Created Revision
	// Holders is how many holders below it may still be at work. MoreHolders: there are more than were counted.
	Holders     int
	MoreHolders bool
}

// Resize sets how many slots a semaphore has, also while it is used. From then on this number counts, whatever number a
// request names. More slots are granted at once, in the order of the queue. With fewer, every holder keeps its slots,
// and none is granted until enough were given back; a client that waits for more slots than there are is refused. Needs
// feature level 11.
func (c *Client) Resize(ctx context.Context, lock string, slots int) error {
	if slots < 1 || slots > math.MaxInt32 {
		return invalid("INVALID_SLOTS", "a semaphore cannot have %d slots", slots)
	}
	return c.resize(ctx, lock, uint32(slots))
}

// ResizeByRequests leaves the number of slots of a semaphore to the requests again: to the first one after it was not
// used.
func (c *Client) ResizeByRequests(ctx context.Context, lock string) error {
	return c.resize(ctx, lock, 0)
}

func (c *Client) resize(ctx context.Context, lock string, slots uint32) error {
	if err := checkName(lock); err != nil {
		return err
	}
	resize := &wireResize{Lock: lock, Slots: slots, By: c.config.Name}
	answer, err := c.call(ctx, wireRequest{Resize: resize}, identity{key: newKey()})
	if err == nil && answer.Resized == nil {
		err = strange()
	}
	return err
}

// Drain closes a prefix: no lock whose name begins so is granted until [Client.Undrain] opens it. Clients that ask
// queue, or are refused with the reason DRAINING if they do not wait. Holders keep their locks, renew and finish. The
// empty prefix is that of every lock.
func (c *Client) Drain(ctx context.Context, prefix, reason string) error {
	drain := &wireDrain{Prefix: prefix, Reason: reason, By: c.config.Name}
	answer, err := c.call(ctx, wireRequest{Drain: drain}, identity{key: newKey()})
	if err == nil && answer.Drained == nil {
		err = strange()
	}
	return err
}

// Undrain opens a prefix that [Client.Drain] closed; its queues go on in order. It returns whether it was closed.
func (c *Client) Undrain(ctx context.Context, prefix string) (bool, error) {
	undrain := &wireUndrain{Prefix: prefix, By: c.config.Name}
	answer, err := c.call(ctx, wireRequest{Undrain: undrain}, identity{key: newKey()})
	switch {
	case err != nil:
		return false, err
	case answer.Undrained == nil:
		return false, strange()
	}
	return answer.Undrained.Existed, nil
}

// Drains returns the prefixes that are closed, ordered, with how many holders are left below each.
func (c *Client) Drains(ctx context.Context) ([]Drain, error) {
	var page struct {
		Drains []wireDrainShown `json:"drains"`
	}
	if err := c.askHTTP(ctx, "GET", "/v1/drains", nil, &page); err != nil {
		return nil, err
	}
	var drains []Drain
	for _, it := range page.Drains {
		drains = append(drains, it.drain())
	}
	return drains, nil
}

func (w *wireDrainShown) drain() Drain {
	return Drain{
		Prefix: w.Prefix, Since: milliseconds(w.DrainedMs), By: w.By, Principal: w.Principal, Reason: w.Reason,
		Created: Revision(w.Created), Holders: w.Holders, MoreHolders: w.MoreHolders,
	}
}
