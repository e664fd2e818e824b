// Starts a PostgreSQL of its own for the tests, as a user without rights if the tests run as root.

package singlewriter

import (
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	_ "github.com/lib/pq"
)

// startMax is how long the server may take to accept connections.
const startMax = 60 * time.Second

// startPostgres starts a server that ends with the test. Without PostgreSQL the test is skipped, and says so.
func startPostgres(t *testing.T) *sql.DB {
	t.Helper()
	programs := findPrograms()
	if programs == "" {
		fmt.Fprintf(os.Stderr, "NOT TESTED: %s needs PostgreSQL, and there is none here (apt-get install postgresql)\n", t.Name())
		t.Skip("there is no PostgreSQL here")
	}
	dir, err := os.MkdirTemp("", "tenure-pg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var attributes *syscall.SysProcAttr
	if os.Geteuid() == 0 {
		// PostgreSQL does not run as root.
		other := unprivileged(t)
		attributes = &syscall.SysProcAttr{Credential: other}
		if err := os.Chown(dir, int(other.Uid), int(other.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	data, port := filepath.Join(dir, "data"), freePort(t)
	run := func(program string, args ...string) *exec.Cmd {
		command := exec.Command(filepath.Join(programs, program), args...)
		command.Dir, command.SysProcAttr = dir, attributes
		return command
	}
	if out, err := run("initdb", "-D", data, "-U", "tenure", "-A", "trust", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	server := run("postgres", "-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-k", dir, "-F")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("postgres", fmt.Sprintf("host=127.0.0.1 port=%d user=tenure dbname=postgres sslmode=disable", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = db.Close()
		// A fast shutdown: it does not wait for connections.
		_ = server.Process.Signal(syscall.SIGINT)
		_ = server.Wait()
	})
	for end := time.Now().Add(startMax); db.Ping() != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("PostgreSQL does not start")
		}
	}
	return db
}

// findPrograms returns the directory of the newest PostgreSQL, or "".
func findPrograms() string {
	// Sorted by name, which is also by version from 10 on.
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) > 0 {
		return filepath.Dir(found[len(found)-1])
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path)
	}
	return ""
}

func unprivileged(t *testing.T) *syscall.Credential {
	t.Helper()
	for _, name := range []string{"postgres", "nobody"} {
		it, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, failed := strconv.ParseUint(it.Uid, 10, 32)
		gid, err := strconv.ParseUint(it.Gid, 10, 32)
		if failed == nil && err == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	t.Fatal("there is no user who may run PostgreSQL")
	return nil
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
