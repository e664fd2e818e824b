// Performs the commands: each is one call of the library.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"github.com/tenure-lock/tenure/clients/go/internal/planted"
)

func (d *driver) perform(ctx context.Context, it command) (fields, error) {
	switch it.Do {
	case "hello":
		return fields{"language": "go", "version": version(), "features": []string{"plant"}}, nil
	case "open":
		return nil, d.open(ctx, it)
	case "close":
		return nil, d.close(ctx, it)
	case "cancel":
		d.mu.Lock()
		cancel := d.running[it.Of]
		d.mu.Unlock()
		if cancel != nil {
			cancel(errCancelled)
		}
		return nil, nil
	case "lock":
		return d.lock(ctx, it)
	case "run":
		return d.scoped(ctx, it)
	case "cycles":
		return d.cycles(ctx, it)
	case "collect":
		debug.FreeOSMemory()
		return nil, nil
	case "lease_grant":
		return d.leaseGrant(ctx, it)
	case "lease_release":
		lease, err := d.objects.leases.get(it.Lease)
		if err != nil {
			return nil, err
		}
		return nil, lease.value.Release(ctx)
	case "campaign":
		return d.campaign(ctx, it)
	case "proclaim", "resign":
		lead, err := d.objects.leaders.get(it.Leader)
		if err != nil {
			return nil, err
		}
		if it.Do == "resign" {
			return nil, lead.Resign(ctx)
		}
		return nil, lead.Proclaim(ctx, []byte(it.Value))
	case "check", "await_lost", "work", "reenter", "release":
		return d.guarded(ctx, it)
	case "upgrade", "downgrade", "hand_on", "progress":
		return d.changed(ctx, it)
	case "observe", "put", "get", "delete", "watch", "force", "resize", "drain", "undrain", "drains":
		return d.atClient(ctx, it)
	case "show", "explain", "locks", "history", "revoke":
		return d.inspect(ctx, it)
	case "exit":
		return nil, nil
	}
	return nil, errUnsupported
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version + " " + runtime.Version()
	}
	return runtime.Version()
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func (d *driver) open(ctx context.Context, it command) error {
	config := tenure.Config{
		Addresses: it.Addrs, Name: it.Name, APIKey: it.APIKey, CAFile: it.CAFile, Timeout: milliseconds(it.TimeoutMs),
	}
	client, err := tenure.Open(planted.Context(ctx, d.bug), config)
	if err == nil {
		d.objects.clients.put(it.Handle, client)
	}
	return err
}

func (d *driver) close(ctx context.Context, it command) error {
	client, err := d.objects.clients.get(it.Handle)
	if err != nil {
		return err
	}
	limit := 5 * time.Second
	if it.DeadlineMs != nil {
		limit = milliseconds(*it.DeadlineMs)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// Closing means that the work has stopped: everything of the client is given back.
	guards, leases := takeOf(d.objects.guards, it.Handle), takeOf(d.objects.leases, it.Handle)
	for _, guard := range guards {
		go func() {
			if err := guard.Release(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, "at close:", err)
			}
		}()
	}
	for _, lease := range leases {
		go func() {
			if err := lease.Release(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, "at close:", err)
			}
		}()
	}
	err = client.Close(ctx)
	// What a stream still says belongs before this answer.
	d.objects.streams.wait(it.Handle)
	return err
}

// lockOptions returns the options that the command has.
func lockOptions(it command) []tenure.LockOption {
	var options []tenure.LockOption
	if it.WaitMs != nil {
		options = append(options, tenure.Wait(milliseconds(*it.WaitMs)))
	}
	if it.TTLMs != 0 {
		options = append(options, tenure.TTL(milliseconds(it.TTLMs)))
	}
	if it.Mode == "shared" {
		options = append(options, tenure.Shared())
	}
	if it.Slots != nil {
		options = append(options, tenure.Slots(*it.Slots))
	}
	if it.Metadata != "" {
		options = append(options, tenure.Metadata([]byte(it.Metadata)))
	}
	if it.MaxHoldMs != 0 {
		options = append(options, tenure.MaxHold(milliseconds(it.MaxHoldMs)))
	}
	if it.LockDelayMs != 0 {
		options = append(options, tenure.LockDelay(milliseconds(it.LockDelayMs)))
	}
	if it.Take != nil {
		options = append(options, tenure.Take(*it.Take))
	}
	if it.Priority != 0 {
		options = append(options, tenure.Priority(it.Priority))
	}
	if it.Supersede != nil {
		options = append(options, tenure.Supersede(*it.Supersede))
	}
	if it.MinHoldMs != 0 {
		options = append(options, tenure.MinHold(milliseconds(it.MinHoldMs)))
	}
	if it.ProgressWithinMs != 0 {
		options = append(options, tenure.ProgressWithin(milliseconds(it.ProgressWithinMs)))
	}
	return options
}

func (d *driver) lock(ctx context.Context, it command) (fields, error) {
	if it.LimitMs != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, milliseconds(it.LimitMs))
		defer cancel()
	}
	locks := it.Locks
	if len(locks) == 0 {
		locks = []string{it.Lock}
	}
	var guard *tenure.Guard
	var err error
	var raised *tenure.Token
	options := lockOptions(it)
	if it.Fence != "" {
		options = append(options, fence(it.Fence, &raised))
	}
	owner := it.Handle
	if it.Lease != "" {
		lease, missing := d.objects.leases.get(it.Lease)
		if missing != nil {
			return nil, missing
		}
		owner = lease.handle
		acquire := lease.value.LockAll
		if it.Any {
			acquire = lease.value.LockAny
		}
		guard, err = acquire(ctx, locks, options...)
	} else {
		client, missing := d.objects.clients.get(it.Handle)
		if missing != nil {
			return nil, missing
		}
		switch {
		case it.Pool != nil:
			guard, err = client.Pool(ctx, *it.Pool, options...)
		case it.Any:
			guard, err = client.LockAny(ctx, locks, options...)
		default:
			guard, err = client.LockAll(ctx, locks, options...)
		}
	}
	if err != nil {
		return nil, err
	}
	d.objects.guards.put(it.Guard, owned[*tenure.Guard]{owner, guard})
	tokens := fields{}
	for _, lock := range guard.Locks() {
		tokens[lock.Name] = decimal(lock.Token)
	}
	out := fields{"lock": guard.Name(), "token": decimal(guard.Token()), "tokens": tokens, "lease": decimal(guard.Lease())}
	if raised != nil {
		out["raised"] = decimal(*raised)
	}
	if slot, ok := guard.Slot(); ok {
		out["slot"] = slot
		taken := fields{}
		for _, lock := range guard.Locks() {
			taken[strconv.Itoa(*lock.Slot)] = decimal(lock.Token)
		}
		out["taken"] = taken
	}
	return out, nil
}

// fence returns a fence that accepts the token, refuses it, or waits until the client no longer does.
func fence(does string, raised **tenure.Token) tenure.LockOption {
	return tenure.Fence(func(ctx context.Context, lock tenure.GrantedLock) error {
		switch does {
		case "refuses":
			return errors.New("a larger token was seen")
		case "waits":
			<-ctx.Done()
			return errors.New("the connection was closed")
		}
		*raised = &lock.Token
		return nil
	})
}

func decimal[T ~uint64](number T) string { return strconv.FormatUint(uint64(number), 10) }

// scoped is lock, work and release in one call of the library.
func (d *driver) scoped(ctx context.Context, it command) (fields, error) {
	client, err := d.objects.clients.get(it.Handle)
	if err != nil {
		return nil, err
	}
	body := func(ctx context.Context, _ *tenure.Guard) error { return working(ctx, it.Ms) }
	if err := client.Do(ctx, it.Lock, body, lockOptions(it)...); err != nil {
		return nil, err
	}
	return fields{"finished": true}, nil
}

// working is work of this length that ends when its context does.
func working(ctx context.Context, ms int64) error {
	timer := time.NewTimer(milliseconds(ms))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// step is how often work that goes step by step checks its guard.
const step = time.Millisecond

// stepping is work of this length that checks its guard before each step, as a thread without a context does. Once it is
// told to stop it goes on for the time that it lingers.
func stepping(ctx context.Context, guard *tenure.Guard, it command) error {
	end := time.Now().Add(milliseconds(it.Ms))
	for time.Now().Before(end) {
		err := guard.Check()
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			time.Sleep(milliseconds(it.LingerMs))
			return err
		}
		time.Sleep(step)
	}
	return nil
}

func (d *driver) leaseGrant(ctx context.Context, it command) (fields, error) {
	client, err := d.objects.clients.get(it.Handle)
	if err != nil {
		return nil, err
	}
	lease, err := client.Lease(ctx, milliseconds(it.TTLMs))
	if err != nil {
		return nil, err
	}
	d.objects.leases.put(it.Lease, owned[*tenure.Lease]{it.Handle, lease})
	return fields{"lease": decimal(lease.ID())}, nil
}

func (d *driver) campaign(ctx context.Context, it command) (fields, error) {
	client, err := d.objects.clients.get(it.Handle)
	if err != nil {
		return nil, err
	}
	lead, err := client.Election(it.Election).Campaign(ctx, []byte(it.Value), lockOptions(it)...)
	if err != nil {
		return nil, err
	}
	d.objects.leaders.put(it.Leader, lead)
	d.objects.guards.put(it.Leader, owned[*tenure.Guard]{it.Handle, lead.Guard})
	return fields{"token": decimal(lead.Token())}, nil
}

// changed performs a command that changes a hold.
func (d *driver) changed(ctx context.Context, it command) (fields, error) {
	of, err := d.objects.guards.get(it.Guard)
	if err != nil {
		return nil, err
	}
	guard := of.value
	switch it.Do {
	case "upgrade":
		err = guard.Upgrade(ctx, lockOptions(it)...)
	case "downgrade":
		err = guard.Downgrade(ctx)
	case "hand_on":
		to, wrong := strconv.ParseUint(it.To, 10, 63)
		if wrong != nil {
			return nil, &tenure.InvalidError{Reason: "INVALID_FIELD", Message: fmt.Sprintf("%q is no lease", it.To)}
		}
		token, err := guard.HandOn(ctx, tenure.LeaseID(to))
		return fields{"token": decimal(token)}, err
	default:
		left, promised, err := guard.Progress(ctx, it.Number)
		if err != nil || !promised {
			return nil, err
		}
		return fields{"left_ms": left.Milliseconds()}, nil
	}
	if err != nil {
		return nil, err
	}
	return fields{"token": decimal(guard.Token())}, nil
}

// guarded performs a command of a guard.
func (d *driver) guarded(ctx context.Context, it command) (fields, error) {
	of, err := d.objects.guards.get(it.Guard)
	if err != nil {
		return nil, err
	}
	guard := of.value
	switch it.Do {
	case "check":
		if err := guard.Check(); err != nil {
			return nil, err
		}
		return fields{"state": guard.Standing().String()}, nil
	case "await_lost":
		var lost *tenure.LostError
		if err := guard.Lost(ctx); !errors.As(err, &lost) {
			return nil, err
		}
		out := fields{"cause": string(lost.Cause)}
		if lost.By != "" {
			out["by"] = lost.By
		}
		if lost.Reason != "" {
			out["reason"] = lost.Reason
		}
		return out, nil
	case "work":
		if it.Mode == "thread" {
			err = stepping(ctx, guard, it)
		} else {
			merged, cancel := context.WithCancelCause(guard.Context())
			defer cancel(nil)
			defer context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })()
			err = working(merged, it.Ms)
		}
		// Success means held until the work had ended.
		if err == nil {
			err = guard.Check()
		}
		if err != nil {
			return nil, err
		}
		return fields{"finished": true}, nil
	case "reenter":
		again, err := guard.Reenter()
		if err != nil {
			return nil, err
		}
		d.objects.guards.put(it.As, owned[*tenure.Guard]{of.handle, again})
		return fields{"token": decimal(again.Token())}, nil
	default:
		return nil, guard.Release(ctx)
	}
}
