// Performs the commands of operators: what locks, their queues and their past show, and the end of another client's lease.

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	tenure "github.com/tenure-lock/tenure/clients/go"
)

func (d *driver) inspect(ctx context.Context, it command) (fields, error) {
	client, err := d.objects.clients.get(it.Handle)
	if err != nil {
		return nil, err
	}
	switch it.Do {
	case "show":
		info, err := client.Show(ctx, it.Lock)
		return shown(info), err
	case "explain":
		return explained(ctx, client, it.Lock)
	case "locks":
		prefix, _ := it.Prefix.(string)
		out := fields{"count": 0}
		count := 0
		for lock, err := range client.Locks(ctx, prefix) {
			if err != nil {
				return nil, err
			}
			if count++; count == 1 {
				out["first"] = lock.Lock
			}
			out["count"], out["last"] = count, lock.Lock
		}
		return out, nil
	case "history":
		return past(ctx, client, it)
	default:
		lease, err := strconv.ParseUint(it.Target, 10, 63)
		if err != nil {
			return nil, &tenure.InvalidError{Reason: "INVALID_FIELD", Message: fmt.Sprintf("%q is no lease", it.Target)}
		}
		return nil, client.Revoke(ctx, tenure.LeaseID(lease), it.Reason, forceOptions(it)...)
	}
}

// forceOptions says how a lock or lease is taken away, and by whom.
func forceOptions(it command) []tenure.ForceOption {
	var options []tenure.ForceOption
	if it.Now {
		options = append(options, tenure.Now())
	}
	if it.By != "" {
		options = append(options, tenure.By(it.By))
	}
	return options
}

func shown(info *tenure.LockInfo) fields {
	out := fields{"waiting": 0}
	if info != nil {
		out["waiting"] = info.Waiting
		for _, holder := range info.Holders[:min(len(info.Holders), 1)] {
			out["holder"] = fields{"client": holder.Client, "token": decimal(holder.Token)}
		}
	}
	return out
}

func explained(ctx context.Context, client *tenure.Client, lock string) (fields, error) {
	it, err := client.Explain(ctx, lock)
	if err != nil {
		return nil, err
	}
	out := shown(it.Lock)
	out["ahead"] = len(it.Waiters)
	for _, first := range it.Waiters[:min(len(it.Waiters), 1)] {
		out["first"] = fields{"client": first.Client, "lease": decimal(first.Lease), "priority": first.Priority}
	}
	if it.Drained != nil {
		out["drained"] = it.Drained.Reason
	}
	return out, nil
}

// past searches the past of a lock, or of all locks below a prefix.
func past(ctx context.Context, client *tenure.Client, it command) (fields, error) {
	var options []tenure.HistoryOption
	if it.OnlyLost {
		options = append(options, tenure.OnlyLosses())
	}
	search := client.History
	if it.Prefix == true {
		search = client.HistoryPrefix
	}
	found, err := search(ctx, it.Lock, options...)
	if err != nil {
		return nil, err
	}
	var causes []string
	out := fields{}
	for _, batch := range found.Batches {
		for _, event := range batch.Events {
			// Whether a request has to queue depends on when the release before it arrives.
			if event.Cause == "queued" {
				continue
			}
			causes = append(causes, event.Cause)
			last := fields{"name": event.Lock, "client": event.Client, "token": decimal(event.Token)}
			if event.By != "" {
				last["by"] = event.By
			}
			if event.Reason != "" {
				last["reason"] = event.Reason
			}
			out["last"] = last
		}
	}
	out["causes"] = strings.Join(causes, ",")
	return out, nil
}
