// Follows the README as a new user would: its first program, in an empty project.

package tenure_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
)

func TestTheFirstProgramOfTheReadmeRunsInAnEmptyProject(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, found := strings.Cut(string(readme), "```go\n")
	program, _, closed := strings.Cut(program, "```")
	if !found || !closed || !strings.HasPrefix(program, "package main") {
		t.Fatal("the README begins with a program")
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	const module = "github.com/tenure-lock/tenure/clients/go"
	for _, step := range [][]string{
		{"mod", "init", "example"},
		{"mod", "edit", "-replace", module + "=" + here, "-require", module + "@v0.1.0"},
		{"mod", "tidy"},
		{"vet", "."},
	} {
		run(t, dir, step...)
	}
	out := run(t, dir, "run", ".")
	want := "holding deploy\nheld until the work had ended\n"
	if out != want {
		t.Fatalf("it printed %q", out)
	}
	// The user's project has the client's dependencies, and no others.
	list := run(t, dir, "list", "-m", "all")
	if found := strings.Count(list, "\n"); found != 4 {
		t.Fatalf("the project has these modules:\n%s", list)
	}
}

// run runs the command go in a directory, against the member of these tests.
func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	command := exec.Command("go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "TENURE_ADDR="+devcluster.Address(), "GOFLAGS=-mod=mod", "GOWORK=off")
	var problems strings.Builder
	command.Stderr = &problems
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s%s", strings.Join(args, " "), err, out, problems.String())
	}
	return string(out)
}
