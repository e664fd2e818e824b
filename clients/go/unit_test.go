// Tests what needs no member: configuration, errors, the alarm, and contexts.

package tenure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestErrorsAreFoundThroughWrapping(t *testing.T) {
	for _, it := range []struct {
		err       error
		is        error
		effect    Effect
		retryable bool
	}{
		{&RefusedError{Reason: "HELD", Message: "held"}, ErrHeld, EffectNone, true},
		{&RefusedError{Reason: "DEADLOCK", Message: "a ring"}, &RefusedError{Reason: "DEADLOCK"}, EffectNone, false},
		{lostError(loss{cause: CauseForced}, "a", 7), ErrLost, EffectUnknown, false},
		{&UnavailableError{}, ErrUnavailable, EffectNone, true},
		{&UnknownError{}, ErrUnknown, EffectUnknown, false},
		{ErrClosed, ErrClosed, EffectNone, false},
		{strange(), &RefusedError{Reason: "STRANGE_ANSWER"}, EffectUnknown, false},
	} {
		err := fmt.Errorf("at work: %w", it.err)
		if !errors.Is(err, it.is) || EffectOf(err) != it.effect || Retryable(err) != it.retryable {
			t.Errorf("%v: is %v, effect %s, retryable %v", err, errors.Is(err, it.is), EffectOf(err), Retryable(err))
		}
	}
	if errors.Is(&RefusedError{Reason: "HELD"}, ErrWaitTimeout) || errors.Is(ErrUnknown, ErrUnavailable) {
		t.Error("kinds differ")
	}
	if errors.Is(lostError(loss{cause: CauseForced}, "a", 7), &LostError{Cause: CauseGone}) {
		t.Error("causes differ")
	}
}

func TestALossReadsLikeASentence(t *testing.T) {
	for want, it := range map[string]loss{
		"forced by ops@host: stuck for an hour":             {cause: CauseForced, by: "ops@host", reason: "stuck for an hour"},
		"forced by ops@host":                                {cause: CauseForced, by: "ops@host"},
		"taken away by force: stuck":                        {cause: CauseForced, reason: "stuck"},
		"revoked by ops@host":                               {cause: CauseRevoked, by: "ops@host"},
		"cluster unreachable for 7.5s":                      {cause: CauseUnreachable, lasted: 7500 * time.Millisecond},
		"the cluster does not have it any more":             {cause: CauseGone},
		"this machine slept for 60.0s":                      {cause: CauseSuspended, lasted: time.Minute},
		"the lease was not renewed in time":                 {cause: CauseExpired},
		"this process did not run for 8.0s":                 {cause: CauseStalled, lasted: 8 * time.Second},
		"held as long as max_hold allows":                   {cause: CauseMaxHold},
		"the lease was revoked by another caller":           {cause: CauseRevoked},
		"given back by its holder":                          {cause: CauseReleased},
		"the credentials are refused; not renewed for 1.0s": {cause: CauseCredentialsRefused, lasted: time.Second},
	} {
		if it.String() != want {
			t.Errorf("%q, not %q", it, want)
		}
	}
}

func TestAConfigIsCheckedBeforeAnythingIsDialled(t *testing.T) {
	key := "tenure_" + strings.Repeat("0", 16) + "_" + strings.Repeat("a", 64)
	for _, bad := range []Config{
		{Addresses: []string{"nowhere"}}, {Addresses: []string{"https://a:1"}}, {Addresses: []string{":1"}},
		{Addresses: []string{"http://a:1"}, CAFile: "ca.pem"}, {APIKey: key[1:]}, {APIKey: key + "a"},
		{CertFile: "me.pem"}, {TTL: time.Millisecond}, {Grace: time.Hour}, {Timeout: -1},
	} {
		if _, err := Open(context.Background(), bad); !errors.As(err, new(*InvalidError)) {
			t.Errorf("%+v: %v", bad, err)
		} else if strings.Contains(err.Error(), "aaaa") {
			t.Error("an error shows the API key")
		}
	}
	good, err := Config{Addresses: []string{"https://a:1/", "b:2"}, CAFile: "ca.pem", APIKey: key + "\n"}.complete()
	if err != nil || good.Addresses[0] != "a:1" || good.APIKey != key || good.TTL != 15*time.Second || good.Name == "" {
		t.Fatal(good, err)
	}
}

func TestCredentialsLeaveTheMachineOnlyUnderTLSOrIfTheUserSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	client := &Client{config: Config{TokenFile: path}}
	if _, failed := client.authorization("127.0.0.1:7450"); failed == nil || failed.denied == nil {
		t.Fatal("there is no token yet")
	}
	for content, want := range map[string]string{"a.b.c\n": "Bearer a.b.c", "longer.b.c": "Bearer longer.b.c", "two words": "", "": ""} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		header, failed := client.authorization("localhost:7450")
		if (failed == nil) != (want != "") || failed == nil && header.Get("Authorization") != want {
			t.Errorf("%q: %v %v", content, header, failed)
		}
	}
	if err := os.WriteFile(path, []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, failed := client.authorization("10.0.0.1:7450"); failed == nil || failed.denied == nil {
		t.Fatal("not in plain text")
	}
	client.config.InsecureCredentials = true
	if _, failed := client.authorization("10.0.0.1:7450"); failed != nil {
		t.Fatal(failed)
	}
}

func TestTheEnvironmentIsRead(t *testing.T) {
	t.Setenv("TENURE_ADDR", "a:1, b:2,")
	t.Setenv("TENURE_CA", "ca.pem")
	t.Setenv("TENURE_API_KEY", "")
	t.Setenv("TENURE_API_KEY_FILE", filepath.Join(t.TempDir(), "missing"))
	if _, err := ConfigFromEnv(); !errors.As(err, new(*InvalidError)) || errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	t.Setenv("TENURE_API_KEY_FILE", "")
	t.Setenv("TENURE_TOKEN_FILE", "token")
	config, err := ConfigFromEnv()
	if err != nil || len(config.Addresses) != 2 || config.Addresses[1] != "b:2" || config.CAFile != "ca.pem" || config.TokenFile != "token" {
		t.Fatal(config, err)
	}
}

func TestNobodyAnswersIsUnavailableWithWhatWasTried(t *testing.T) {
	_, err := Open(context.Background(), Config{Addresses: []string{"127.0.0.1:1"}, Timeout: 200 * time.Millisecond})
	var unavailable *UnavailableError
	if !errors.As(err, &unavailable) || len(unavailable.Tried) != 1 || unavailable.Tried[0].Outcome != "refused" {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = Open(ctx, Config{Addresses: []string{"127.0.0.1:1"}})
	if !errors.Is(err, context.DeadlineExceeded) || EffectOf(err) != EffectNone {
		t.Fatal(err)
	}
}

func TestAnAlarmFiresAtItsMomentAndWhenItIsMovedForward(t *testing.T) {
	clock := newMachineClock()
	alarm, err := newAlarm(clock)
	if err != nil {
		t.Fatal(err)
	}
	at := clock.read().boot.add(60 * time.Millisecond)
	alarm.set(at)
	if !alarm.wait() || clock.read().boot < at {
		t.Fatal("it fired too early")
	}
	alarm.set(clock.read().boot.add(time.Hour))
	time.AfterFunc(20*time.Millisecond, func() { alarm.set(1) })
	if !alarm.wait() {
		t.Fatal("it is not closed")
	}
	alarm.set(farMoment)
	time.AfterFunc(20*time.Millisecond, alarm.close)
	if alarm.wait() {
		t.Fatal("a closed alarm does not fire")
	}
	alarm.set(1)
}

// A guard's context compares the clock when it is asked, also if no timer has run.
func TestAContextEndsByTheClockAndPassesItsCauseOn(t *testing.T) {
	clock := newMachineClock()
	alarm, err := newAlarm(clock)
	if err != nil {
		t.Fatal(err)
	}
	config, err := Config{}.complete()
	if err != nil {
		t.Fatal(err)
	}
	client := &Client{config: config, log: config.Logger, clock: clock, alarm: alarm, leases: map[LeaseID]*heldLease{}}
	timing, err := newLeaseTiming(200 * time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	pending := pendingGrant{timing: timing}
	pending.sent(clock.read())
	state, _ := pending.granted(clock.read())
	lease := newHeldLease(client, &wireLeaseGranted{Lease: 7, Created: 1}, state)
	type key struct{}
	acquired := context.WithValue(context.Background(), key{}, "value")
	guard, err := newGuard(acquired, lease, false, grantedAt{locks: []GrantedLock{{Name: "deploy", Token: 1}}, revision: 1})
	if err != nil {
		t.Fatal(err)
	}
	derived, cancel := context.WithCancel(guard.Context())
	defer cancel()
	merged, end := guard.workContext(context.Background())
	defer end()
	if guard.Context().Err() != nil || derived.Value(key{}) != "value" {
		t.Fatal("it is held")
	}
	// No goroutine looks after this client: only the clock can tell.
	time.Sleep(timing.window)
	if !errors.Is(guard.Context().Err(), context.Canceled) {
		t.Fatal("the time is over")
	}
	for _, ctx := range []context.Context{guard.Context(), derived, merged} {
		if !errors.Is(context.Cause(ctx), ErrLost) || ctx.Err() == nil {
			t.Fatal(context.Cause(ctx))
		}
	}
	select {
	case <-derived.Done():
	default:
		t.Fatal("derived contexts end at the same time")
	}
	if !errors.Is(context.Cause(lease.lost.ctx), ErrLost) {
		t.Fatal("so does that of the lease")
	}
}

func TestStandingsTellTheNewest(t *testing.T) {
	signal := newLossSignal(context.Background())
	to := signal.subscribe(Valid)
	signal.stands(Overdue)
	if found := <-to; found != Overdue {
		t.Fatal(found)
	}
	signal.stands(Valid)
	signal.fire(lostError(loss{cause: CauseGone}, "", 0))
	signal.stands(Valid)
	if found := <-to; found != Lost {
		t.Fatal("a loss is final", found)
	}
	if found := <-signal.subscribe(Lost); found != Lost {
		t.Fatal(found)
	}
}

func TestAnExplanationSaysThatTheTurnOfALockIsStillToCome(t *testing.T) {
	var shown wireExplained
	if got := shown.explanation(1).Reopening; got != nil {
		t.Errorf("%v without an answer", got)
	}
	if err := json.Unmarshal([]byte(`{"reopening_ms": 12}`), &shown); err != nil {
		t.Fatal(err)
	}
	if got := shown.explanation(1).Reopening; got == nil || *got != 12*time.Millisecond {
		t.Errorf("%v", got)
	}
}
