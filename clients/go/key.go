// Reads and writes keys of the small key-value store beside the locks, optionally guarded by a lock.

package tenure

import (
	"context"
)

// A KeyValue is a key and its value.
type KeyValue struct {
	Key   string
	Value []byte
	// Created and Modified are the revisions that created the key and last wrote it.
	Created  Revision
	Modified Revision
	// Version is how often the key was written since it was created.
	Version uint64
	// Lease is the lease that the key ends with; zero for none.
	Lease LeaseID
}

// A KeyOption is a condition of a write.
type KeyOption func(*keyOptions)

type keyOptions struct {
	expect *wireExpect
	guard  *Guard
	lease  *Lease
	id     string
	twice  bool
}

func (o *keyOptions) expects(it wireExpect) {
	o.twice = o.twice || o.expect != nil
	o.expect = &it
}

// IfAbsent requires that the key does not exist.
func IfAbsent() KeyOption { return func(o *keyOptions) { o.expects(wireExpect{Absent: true}) } }

// IfModified requires that the key was last written at this revision.
func IfModified(revision Revision) KeyOption {
	return func(o *keyOptions) {
		at := decimal(revision)
		o.expects(wireExpect{Modified: &at})
	}
}

// IfValue requires that the key has this value.
func IfValue(value []byte) KeyOption {
	return func(o *keyOptions) {
		var it wireExpect
		it.Value, it.ValueBase64 = textOrBase64(value)
		o.expects(it)
	}
}

// GuardedBy requires that the guard's lock is still held under its token: the cluster itself is the fence.
func GuardedBy(guard *Guard) KeyOption { return func(o *keyOptions) { o.guard = guard } }

// BoundTo deletes the key when the lease ends. It has no effect on a deletion.
func BoundTo(lease *Lease) KeyOption { return func(o *keyOptions) { o.lease = lease } }

// RequestID repeats a write whose outcome stayed unknown under the id that its [*UnknownError] names: it then happens
// once. The write must be the same.
func RequestID(id string) KeyOption { return func(o *keyOptions) { o.id = id } }

func keyOptionsOf(key string, options []KeyOption) (keyOptions, error) {
	o := keyOptions{id: newKey()}
	for _, option := range options {
		option(&o)
	}
	if o.twice {
		return o, invalid("INVALID_FIELD", "a write has at most one of IfAbsent, IfModified and IfValue")
	}
	return o, checkName(key)
}

func (o *keyOptions) wireGuard() *wireGuard {
	if o.guard == nil {
		return nil
	}
	lock := o.guard.Locks()[0]
	return &wireGuard{Lock: lock.Name, Token: decimal(lock.Token)}
}

// Get returns a key and whether it exists.
func (c *Client) Get(ctx context.Context, key string) (KeyValue, bool, error) {
	if err := checkName(key); err != nil {
		return KeyValue{}, false, err
	}
	answer, err := c.call(ctx, wireRequest{GetKey: &wireTarget{Name: key}}, identity{})
	if err != nil {
		return KeyValue{}, false, err
	}
	if answer.Key == nil {
		return KeyValue{}, false, strange()
	}
	if answer.Key.Key == nil {
		return KeyValue{}, false, nil
	}
	return keyValue(answer.Key.Key), true, nil
}

func keyValue(shown *wireKeyShown) KeyValue {
	return KeyValue{
		Key: shown.Key, Value: bytesOf(shown.Value, shown.ValueBase64), Created: Revision(shown.Created),
		Modified: Revision(shown.Modified), Version: shown.Version, Lease: LeaseID(shown.Lease),
	}
}

// Put writes a key, and returns its version: how often it was written since it was created. A condition that does not
// hold is a [*RefusedError] with the reason COMPARE_FAILED, a lock that is not held one with GUARD_FAILED.
func (c *Client) Put(ctx context.Context, key string, value []byte, options ...KeyOption) (version uint64, err error) {
	o, err := keyOptionsOf(key, options)
	if err != nil {
		return 0, err
	}
	put := &wirePut{Key: key, Expect: o.expect, Guard: o.wireGuard()}
	put.Value, put.ValueBase64 = textOrBase64(value)
	if o.lease != nil {
		put.Lease = decimal(o.lease.held.id)
	}
	answer, err := c.call(ctx, wireRequest{Put: put}, identity{key: o.id})
	if err != nil {
		return 0, err
	}
	if answer.Put == nil {
		return 0, strange()
	}
	return answer.Put.Version, nil
}

// Delete deletes a key, and returns whether it existed.
func (c *Client) Delete(ctx context.Context, key string, options ...KeyOption) (existed bool, err error) {
	o, err := keyOptionsOf(key, options)
	if err != nil {
		return false, err
	}
	del := &wireDelete{Key: key, Expect: o.expect, Guard: o.wireGuard()}
	answer, err := c.call(ctx, wireRequest{Delete: del}, identity{key: o.id})
	if err != nil {
		return false, err
	}
	if answer.Deleted == nil {
		return false, strange()
	}
	return answer.Deleted.Existed, nil
}
