// Performs the commands of a client that make no guard: keys, inspection, streams.

package main

import (
	"context"
	"fmt"
	"strconv"

	tenure "github.com/tenure-lock/tenure/clients/go"
)

// atClient performs a command of a client that makes no guard.
func (d *driver) atClient(ctx context.Context, it command) (fields, error) {
	client, err := d.objects.clients.get(it.Handle)
	if err != nil {
		return nil, err
	}
	switch it.Do {
	case "observe":
		d.objects.streams.begin(it.Handle, func() { d.observe(client, it) })
		return nil, nil
	case "watch":
		return nil, d.watch(client, it)
	case "put":
		return d.put(ctx, client, it)
	case "get":
		value, found, err := client.Get(ctx, it.Key)
		if err != nil || !found {
			return nil, err
		}
		return fields{"version": value.Version, "value": string(value.Value)}, nil
	case "delete":
		options, err := d.keyOptions(ctx, client, it)
		if err != nil {
			return nil, err
		}
		existed, err := client.Delete(ctx, it.Key, options...)
		if err != nil {
			return nil, err
		}
		return fields{"existed": existed}, nil
	case "force":
		token, err := strconv.ParseUint(it.Token, 10, 64)
		if err != nil {
			return nil, &tenure.InvalidError{Reason: "INVALID_FIELD", Message: fmt.Sprintf("%q is no token", it.Token)}
		}
		_, err = client.Force(ctx, it.Lock, tenure.Token(token), it.Reason, forceOptions(it)...)
		return nil, err
	case "resize":
		if it.Slots == nil {
			return nil, client.ResizeByRequests(ctx, it.Lock)
		}
		return nil, client.Resize(ctx, it.Lock, *it.Slots)
	default:
		return drained(ctx, client, it)
	}
}

// drained performs a command about a prefix that is closed to new grants.
func drained(ctx context.Context, client *tenure.Client, it command) (fields, error) {
	prefix, _ := it.Prefix.(string)
	switch it.Do {
	case "drain":
		return nil, client.Drain(ctx, prefix, it.Reason)
	case "undrain":
		existed, err := client.Undrain(ctx, prefix)
		return fields{"existed": existed}, err
	}
	drains, err := client.Drains(ctx)
	for _, it := range drains {
		if it.Prefix == prefix {
			return fields{"reason": it.Reason, "by": it.By, "holders": it.Holders}, nil
		}
	}
	return nil, err
}

func (d *driver) put(ctx context.Context, client *tenure.Client, it command) (fields, error) {
	options, err := d.keyOptions(ctx, client, it)
	if err != nil {
		return nil, err
	}
	version, err := client.Put(ctx, it.Key, []byte(it.Value), options...)
	if err != nil {
		return nil, err
	}
	return fields{"version": version}, nil
}

func (d *driver) keyOptions(ctx context.Context, client *tenure.Client, it command) ([]tenure.KeyOption, error) {
	var options []tenure.KeyOption
	if it.ExpectAbsent {
		options = append(options, tenure.IfAbsent())
	}
	if it.ExpectVersion != nil {
		// The cluster compares revisions, so the one that belongs to the version is read first.
		value, found, err := client.Get(ctx, it.Key)
		if err != nil {
			return nil, err
		}
		if !found || value.Version != *it.ExpectVersion {
			return nil, &tenure.RefusedError{Reason: "COMPARE_FAILED", Message: "the key is not as the condition says"}
		}
		options = append(options, tenure.IfModified(value.Modified))
	}
	if it.Guard != "" {
		guard, err := d.objects.guards.get(it.Guard)
		if err != nil {
			return nil, err
		}
		options = append(options, tenure.GuardedBy(guard.value))
	}
	if it.Lease != "" {
		lease, err := d.objects.leases.get(it.Lease)
		if err != nil {
			return nil, err
		}
		options = append(options, tenure.BoundTo(lease.value))
	}
	return options, nil
}
