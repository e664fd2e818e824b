// Package devcluster starts a member for tests, with the command `tenure dev`.
package devcluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startMax is how long a member may take to be ready.
const startMax = 20 * time.Second

// member is the one member of a test program. It starts when a test first asks for its address, so that tests which need
// none run without the command.
var member struct {
	once    sync.Once
	address string
	stop    func() error
}

// Address returns the address of the member.
func Address() string {
	member.once.Do(func() {
		var err error
		if member.address, member.stop, err = start(); err != nil {
			// Without a member no test of the program can say anything.
			panic(err)
		}
	})
	return member.address
}

// Main runs the tests of a program, and stops the member that they used.
func Main(m *testing.M) {
	status := m.Run()
	if member.stop != nil {
		if err := member.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(status)
}

func start() (address string, stop func() error, err error) {
	path, err := Binary()
	if err != nil {
		return "", nil, err
	}
	command := exec.Command(path, "dev", "--fresh", "--clients", "127.0.0.1:0", "--output", "json", "--log-level", "error")
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := command.Start(); err != nil {
		return "", nil, err
	}
	late := time.AfterFunc(startMax, func() { _ = command.Process.Kill() })
	defer late.Stop()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var ready struct {
			Event   string   `json:"event"`
			Clients []string `json:"clients"`
		}
		if json.Unmarshal(lines.Bytes(), &ready) == nil && ready.Event == "ready" {
			return ready.Clients[0], func() error {
				// It removes its data when it is asked to stop.
				return errors.Join(command.Process.Signal(syscall.SIGTERM), command.Wait())
			}, nil
		}
	}
	return "", nil, errors.Join(errors.New("the member did not become ready"), command.Wait())
}

// Binary returns the path of the command `tenure`: TENURE_BIN, or what cargo has built in this repository.
func Binary() (string, error) {
	if path := os.Getenv("TENURE_BIN"); path != "" {
		return path, nil
	}
	_, here, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(here), "..", "..", "..", "..")
	for _, kind := range []string{"release", "debug"} {
		path := filepath.Join(root, "target", kind, "tenure")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("build the command first (cargo build -p tenure-cli), or name it in TENURE_BIN")
}
