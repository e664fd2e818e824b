// Command driver plays this client for the conformance runner: JSON lines in, JSON lines out.
//
// Commands run side by side. Every command has exactly one answer, with the time at which the call of the library
// returned. The protocol is in clients/driver.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/tenure-lock/tenure/clients/go/internal/planted"
)

// lineBytesMax is the longest command.
const lineBytesMax = 16 << 20

// A command is one line of the runner.
type command struct {
	ID     int64  `json:"id"`
	Do     string `json:"do"`
	Handle string `json:"handle"`
	Guard  string `json:"guard"`
	As     string `json:"as"`
	Lease  string `json:"lease"`
	Leader string `json:"leader"`
	Stream string `json:"stream"`
	Of     int64  `json:"of"`

	Addrs      []string `json:"addrs"`
	Name       string   `json:"name"`
	APIKey     string   `json:"api_key"`
	CAFile     string   `json:"ca_file"`
	TimeoutMs  int64    `json:"timeout_ms"`
	DeadlineMs *int64   `json:"deadline_ms"`

	Lock             string   `json:"lock"`
	Locks            []string `json:"locks"`
	Any              bool     `json:"any"`
	Pool             *string  `json:"pool"`
	WaitMs           *int64   `json:"wait_ms"`
	TTLMs            int64    `json:"ttl_ms"`
	Mode             string   `json:"mode"`
	Slots            *int     `json:"slots"`
	Metadata         string   `json:"metadata"`
	MaxHoldMs        int64    `json:"max_hold_ms"`
	LockDelayMs      int64    `json:"lock_delay_ms"`
	LimitMs          int64    `json:"limit_ms"`
	Take             *int     `json:"take"`
	Priority         int      `json:"priority"`
	Supersede        *string  `json:"supersede"`
	MinHoldMs        int64    `json:"min_hold_ms"`
	ProgressWithinMs int64    `json:"progress_within_ms"`
	To               string   `json:"to"`
	Number           uint64   `json:"number"`
	Ms               int64    `json:"ms"`
	LingerMs         int64    `json:"linger_ms"`
	Workers          int      `json:"workers"`

	Election string `json:"election"`
	Value    string `json:"value"`

	Key           string  `json:"key"`
	ExpectVersion *uint64 `json:"expect_version"`
	ExpectAbsent  bool    `json:"expect_absent"`
	Prefix        any     `json:"prefix"` // true for a watch or a history, else text
	FromRevision  string  `json:"from_revision"`
	Token         string  `json:"token"`
	Reason        string  `json:"reason"`
	By            string  `json:"by"`
	Now           bool    `json:"now"`
	Fence         string  `json:"fence"`
	Target        string  `json:"target"`
	OnlyLost      bool    `json:"lost"`
}

// fields are the fields of an answer or event.
type fields map[string]any

// A driver holds what commands have made, by name.
type driver struct {
	bug planted.Bug

	out sync.Mutex

	mu      sync.Mutex
	objects objects
	running map[int64]context.CancelCauseFunc
}

func main() {
	bug, known := planted.Named(os.Getenv("TENURE_PLANT"))
	if !known {
		fmt.Fprintln(os.Stderr, "TENURE_PLANT names no bug of this driver")
		os.Exit(2)
	}
	d := &driver{bug: bug, objects: newObjects(), running: map[int64]context.CancelCauseFunc{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		var it command
		if err := json.Unmarshal(lines.Bytes(), &it); err != nil {
			d.say(fields{"id": it.ID, "error": fields{"kind": "invalid", "effect": "none", "message": err.Error()}})
			continue
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		d.mu.Lock()
		d.running[it.ID] = cancel
		d.mu.Unlock()
		go d.run(ctx, it)
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run performs one command and answers it.
func (d *driver) run(ctx context.Context, it command) {
	ok, err := d.perform(ctx, it)
	at := monotonicMicros()
	d.mu.Lock()
	cancel := d.running[it.ID]
	delete(d.running, it.ID)
	d.mu.Unlock()
	cancel(nil)
	if err != nil {
		d.say(fields{"id": it.ID, "error": errorFields(err), "at_us": at})
	} else {
		if ok == nil {
			ok = fields{}
		}
		d.say(fields{"id": it.ID, "ok": ok, "at_us": at})
	}
	if it.Do == "exit" {
		os.Exit(0)
	}
}

// event tells something unasked.
func (d *driver) event(name, stream string, more fields) {
	line := fields{"event": name, "stream": stream, "at_us": monotonicMicros()}
	for key, value := range more {
		line[key] = value
	}
	d.say(line)
}

// say writes one line.
func (d *driver) say(line fields) {
	text, err := json.Marshal(line)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	d.out.Lock()
	defer d.out.Unlock()
	if _, err := os.Stdout.Write(append(text, '\n')); err != nil {
		// The runner is gone.
		os.Exit(0)
	}
}
