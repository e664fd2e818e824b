// Replays the traces that the Rust client's lease state printed: the same inputs must give the same outputs.

package tenure

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-lock/tenure/clients/go/internal/planted"
)

// vectorsMin is how many traces there are at least; fewer means that the files were not found.
const vectorsMin = 500

type trace struct {
	Name    string           `json:"name"`
	TTL     int64            `json:"ttl"`
	Window  *int64           `json:"window"`
	Grace   int64            `json:"grace"`
	Times   map[string]int64 `json:"times"`
	Refused string           `json:"refused"`
	Least   int64            `json:"least"`
	Most    int64            `json:"most"`
	Steps   []traceStep      `json:"steps"`
}

type traceStep struct {
	At       int64          `json:"at"`
	Slept    int64          `json:"slept"`
	Do       string         `json:"do"`
	Number   uint64         `json:"number"`
	TTL      int64          `json:"ttl"`
	Changed  string         `json:"changed"`
	Revision string         `json:"revision"`
	Holds    []string       `json:"holds"`
	Cause    string         `json:"cause"`
	Lock     string         `json:"lock"`
	Token    string         `json:"token"`
	Out      map[string]any `json:"out"`
}

func micros(number int64) time.Duration { return time.Duration(number) * time.Microsecond }

func number(t *testing.T, text string) uint64 {
	if text == "" {
		return 0
	}
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// play replays a trace with a planted bug, and returns the first difference.
func play(t *testing.T, it trace, bug plant) string {
	timing, err := newLeaseTiming(micros(it.TTL))
	if err == nil && it.Window != nil {
		timing, err = timing.withWindow(micros(*it.Window))
	}
	if err == nil {
		timing, err = timing.stopWithin(micros(it.Grace))
	}
	if err != nil {
		refused := err.(*InvalidError)
		same := refused.least.Microseconds() == it.Least && refused.most.Microseconds() == it.Most
		if "INVALID_"+strings.ToUpper(it.Refused) != refused.Reason || !same {
			return "refused: " + err.Error()
		}
		return ""
	}
	if it.Refused != "" {
		return "not refused: " + it.Refused
	}
	found := map[string]int64{
		"window": timing.window.Microseconds(), "renew_after": timing.renewAfter().Microseconds(),
		"retry": timing.retry().Microseconds(), "overdue_after": timing.doubtfulAfter().Microseconds(),
		"surely_lives": timing.surelyLives().Microseconds(),
	}
	if !reflect.DeepEqual(found, it.Times) {
		return "times differ"
	}
	pending := pendingGrant{timing: timing}
	var state *leaseState
	for at, step := range it.Steps {
		out := perform(t, &pending, &state, step, bug)
		// What was printed went through JSON, so what is compared does too.
		text, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		var round map[string]any
		if err := json.Unmarshal(text, &round); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(round, step.Out) {
			want, _ := json.Marshal(step.Out)
			return "step " + strconv.Itoa(at) + " " + step.Do + "\n  found " + string(text) + "\n  want  " + string(want)
		}
	}
	return ""
}

func perform(t *testing.T, pending *pendingGrant, state **leaseState, step traceStep, bug plant) map[string]any {
	now := clockReading{boot: moment(step.At), awake: moment(step.At - step.Slept)}
	out := map[string]any{}
	lease, token := *state, number(t, step.Token)
	because := func(key string, lost *loss) {
		out[key] = lost == nil
		if lost != nil {
			out["because"] = string(lost.cause)
		}
	}
	switch step.Do {
	case "send_grant":
		pending.sent(now)
	case "granted":
		granted, late := pending.granted(now)
		if granted == nil {
			out["too_late"] = late.Microseconds()
		} else {
			granted.plant = bug
			*state, lease = granted, granted
		}
	case "poll":
		out["renew"] = lease.poll(now)
	case "renewing":
		out["number"] = lease.renewing(now)
	case "renewed":
		effect := lease.renewed(step.Number, micros(step.TTL), number(t, step.Changed), now)
		out["read_holdings"] = effect == ackReadHoldings
	case "not_renewed":
		lease.notRenewed(step.Number)
	case "holdings":
		var holds []uint64
		for _, hold := range step.Holds {
			holds = append(holds, number(t, hold))
		}
		lease.holdings(number(t, step.Revision), number(t, step.Changed), holds, now)
	case "ended":
		lease.ended(loss{cause: Cause(step.Cause)}, now)
	case "lock_granted":
		because("held", lease.granted(step.Lock, token, number(t, step.Revision), now))
	case "taken":
		lease.taken(token, loss{cause: Cause(step.Cause)})
	case "check":
		out["ok"] = lease.check(now) == nil
	case "check_lock":
		because("ok", lease.checkGrant(token, now))
	case "stopped":
		lease.stopped(token)
	case "farewells":
		said := []map[string]any{}
		for _, it := range lease.farewells() {
			word := map[endMessage]string{endRelease: "release", endConfirm: "stopped"}[it.message]
			said = append(said, map[string]any{"say": word, "lock": it.lock, "token": strconv.FormatUint(it.token, 10)})
		}
		out["farewells"] = said
	case "give_back":
		out["release"] = nil
		if lock, held := lease.givenBack(token, now); held {
			out["release"] = lock
		}
	case "end_if_idle":
		out["ended"] = lease.endIfIdle()
	case "credentials_refused":
		lease.credentialsRefused()
	default:
		t.Fatalf("the vectors have a step that is not known here: %s", step.Do)
	}
	if lease != nil {
		shown(lease, now, out)
	}
	return out
}

// shown adds the state of the lease at this moment.
func shown(lease *leaseState, now clockReading, out map[string]any) {
	out["state"] = lease.standing(now).String()
	if lost := lease.lost; lost != nil {
		out["cause"] = string(lost.cause)
		measures := map[Cause]string{
			CauseUnreachable: "silent", CauseCredentialsRefused: "silent", CauseStalled: "late", CauseSuspended: "suspended",
		}
		if measure := measures[lost.cause]; measure != "" {
			out[measure] = lost.lasted.Microseconds()
		}
	} else {
		out["due"], out["lost_at"] = uint64(lease.due()), uint64(lease.lostAt())
	}
	locks := map[string]any{}
	for _, token := range lease.tokens() {
		locks[strconv.FormatUint(token, 10)] = "held"
	}
	for _, lost := range lease.losses() {
		locks[strconv.FormatUint(lost.token, 10)] = string(lost.lost.cause)
	}
	if len(locks) > 0 {
		out["locks"] = locks
	}
}

func traces(t *testing.T) []trace {
	dir := os.Getenv("TENURE_VECTORS")
	if dir == "" {
		dir = filepath.Join("..", "vectors")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var all []trace
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			var it trace
			if err := json.Unmarshal(lines.Bytes(), &it); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			all = append(all, it)
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if len(all) < vectorsMin {
		t.Fatalf("%d vectors in %s; TENURE_VECTORS names their directory", len(all), dir)
	}
	return all
}

func TestEveryVectorIsReplayedExactly(t *testing.T) {
	// `cargo xtask clients --planted` plants a bug, and expects that this fails.
	bug, known := planted.Named(os.Getenv("TENURE_PLANT"))
	if !known {
		t.Fatal("TENURE_PLANT names no bug")
	}
	all := traces(t)
	failed := 0
	for _, it := range all {
		if different := play(t, it, bug); different != "" {
			failed++
			t.Errorf("%s: %s", it.Name, different)
		}
	}
	t.Logf("vectors traces=%d failed=%d", len(all), failed)
}

// The bugs of the lease state are caught by vectors; a retry without its id and a check in the driver, by scenarios.
func TestVectorsCatchPlantedBugs(t *testing.T) {
	all := traces(t)
	for name, bug := range map[string]plant{
		"renewal_from_answer": plantRenewalFromAnswer, "loss_not_final": plantLossNotFinal,
		"release_while_working": plantReleaseWhileWorking, "check_by_timer": plantCheckByTimer,
	} {
		caught := 0
		for _, it := range all {
			if play(t, it, bug) != "" {
				caught++
			}
		}
		t.Logf("%s is caught by %d of %d vectors", name, caught, len(all))
		if caught == 0 {
			t.Errorf("%s is not caught", name)
		}
	}
}
