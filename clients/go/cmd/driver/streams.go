// Turns observations and watches into events.

package main

import (
	"context"
	"errors"
	"strconv"

	tenure "github.com/tenure-lock/tenure/clients/go"
)

// observe tells who leads until the client is closed.
func (d *driver) observe(client *tenure.Client, it command) {
	for leader, err := range client.Election(it.Election).Observe(context.Background()) {
		switch {
		case err != nil:
			continue
		case leader == nil:
			d.event("leader", it.Stream, fields{"value": nil})
		default:
			d.event("leader", it.Stream, fields{"value": string(leader.Value)})
		}
	}
}

// watch starts a watch, and tells its changes until it ends.
func (d *driver) watch(client *tenure.Client, it command) error {
	var options []tenure.WatchOption
	if it.FromRevision != "" {
		from, err := strconv.ParseUint(it.FromRevision, 10, 64)
		if err != nil {
			return &tenure.InvalidError{Reason: "INVALID_FIELD", Message: err.Error()}
		}
		options = append(options, tenure.FromRevision(tenure.Revision(from)))
	}
	name := it.Key
	if name == "" {
		name = it.Lock
	}
	start := client.Watch
	if it.Prefix == true {
		start = client.WatchPrefix
	}
	watch, err := start(context.Background(), name, options...)
	var compacted *tenure.CompactedError
	if errors.As(err, &compacted) {
		d.compacted(it.Stream, compacted)
		return nil
	}
	if err != nil {
		return err
	}
	d.objects.streams.begin(it.Handle, func() { d.tellChanges(watch, it.Stream) })
	return nil
}

func (d *driver) tellChanges(watch *tenure.Watch, stream string) {
	for batch, err := range watch.All() {
		var compacted *tenure.CompactedError
		if errors.As(err, &compacted) {
			d.compacted(stream, compacted)
			return
		}
		if errors.Is(err, tenure.ErrClosed) {
			// The runner closed the client, and listens no more.
			return
		}
		if err != nil {
			continue
		}
		for _, event := range batch.Events {
			d.change(stream, batch.Revision, event)
		}
	}
	d.event("ended", stream, nil)
}

func (d *driver) change(stream string, revision tenure.Revision, event tenure.Event) {
	out := fields{"revision": decimal(revision), "cause": event.Cause}
	if event.Key != "" {
		out["name"] = event.Key
	} else if event.Lock != "" {
		out["name"] = event.Lock
	}
	if event.Value != nil {
		out["value"] = string(event.Value)
	}
	if event.Token != 0 {
		out["token"] = decimal(event.Token)
	}
	d.event("change", stream, out)
}

func (d *driver) compacted(stream string, compacted *tenure.CompactedError) {
	d.event("compacted", stream, fields{"oldest": decimal(compacted.Floor)})
	d.event("ended", stream, nil)
}
