// Follows the README as a new user would: its first program, in an empty project.

package tenure_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
)

const module = "github.com/tenure-lock/tenure/clients/go"

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

// The other calls of the README compile, with what a reader has to add.
func TestEveryOtherCallOfTheReadmeCompiles(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(readme), "```go\n")[2:]
	if len(blocks) != 3 {
		t.Fatalf("%d blocks", len(blocks))
	}
	code := readmeHead
	for number, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		block = strings.NewReplacer(
			"if err != nil { … }", "if err != nil { return err }",
			"Observe(ctx) { … }", "Observe(ctx) { if err != nil { return err }; use(leader) }",
			"All() { … }", "All() { if err != nil { return err }; use(batch) }",
		).Replace(block)
		parameters := "ctx context.Context, key string, rows []int, revision tenure.Revision"
		for name, kind := range map[string]string{"client": "*tenure.Client", "guard": "*tenure.Guard"} {
			if !strings.Contains(block, name+", err :=") {
				parameters += ", " + name + " " + kind
			}
		}
		code += fmt.Sprintf("func block%d(%s) error {\n%s\nuse(client, err)\nreturn nil\n}\n", number, parameters, block)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "calls.go"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "mod", "init", "example")
	run(t, dir, "mod", "edit", "-replace", module+"="+here, "-require", module+"@v0.1.0")
	run(t, dir, "mod", "tidy")
	run(t, dir, "build", ".")
}

const readmeHead = `package calls

import (
	"context"
	"log/slog"

	tenure "github.com/tenure-lock/tenure/clients/go"
)

var _ = slog.Default

func run(context.Context)                              {}
func serve(context.Context, *tenure.Leadership) error { return nil }
func write(int, tenure.Token)                          {}
func use(...any)                                       {}

`

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
