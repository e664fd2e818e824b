// Follows the README as a new user would: its first program, in an empty project. The other calls of the documents compile.

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
	program := goBlocks(t, "README.md")[0]
	if !strings.HasPrefix(program, "package main") {
		t.Fatal("the README begins with a program")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	newModule(t, dir)
	run(t, dir, "vet", ".")
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

// documented are the documents whose calls must compile, and what a reader has to add to them.
var documented = map[string]string{
	"README.md": `
func run(context.Context)                             {}
func serve(context.Context, *tenure.Leadership) error { return nil }
func write(int, tenure.Token)                         {}
`,
	"docs/cron.md": `
func report(context.Context, tenure.Token) error { return nil }
`,
	"docs/migrations.md": `
const url = ""
func pending(context.Context, *sql.DB) []string                   { return nil }
func apply(context.Context, *sql.DB, string, tenure.Token) error { return nil }
func serve()                                                     {}
`,
}

const documentedHead = `package calls

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"log/slog"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
)

var _ = []any{sql.Open, errors.Is, log.Fatal, slog.Default, time.Now}

func use(...any) {}
`

func TestEveryCallOfTheDocumentsCompiles(t *testing.T) {
	t.Parallel()
	for document, added := range documented {
		code := documentedHead + added
		for number, block := range goBlocks(t, document) {
			if strings.HasPrefix(block, "package main") {
				continue // It runs in the other test.
			}
			block = strings.NewReplacer(
				"if err != nil { … }", "if err != nil { return err }",
				"Observe(ctx) { … }", "Observe(ctx) { if err != nil { return err }; use(leader) }",
				"All() { … }", "All() { if err != nil { return err }; use(batch) }",
			).Replace(block)
			parameters := "ctx context.Context, key string, rows []int, revision tenure.Revision"
			for name, kind := range map[string]string{"client": "*tenure.Client", "guard": "*tenure.Guard"} {
				if !strings.Contains(block, name+", err :=") && !strings.Contains(block, name+", ok, err :=") {
					parameters += ", " + name + " " + kind
				}
			}
			end := "use(client, err)\nreturn nil\n"
			if strings.HasPrefix(block, "guard, ok, err :=") {
				end = ""
			}
			code += fmt.Sprintf("\nfunc block%d(%s) error {\n%s\n%s}\n", number, parameters, block, end)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "calls.go"), []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		newModule(t, dir)
		run(t, dir, "build", ".")
	}
}

// goBlocks returns the Go code in a document.
func goBlocks(t *testing.T, document string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(text), "```go\n")[1:] {
		code, _, closed := strings.Cut(block, "```")
		if !closed {
			t.Fatalf("%s has a block without an end", document)
		}
		blocks = append(blocks, code)
	}
	return blocks
}

// newModule makes a module that uses this one.
func newModule(t *testing.T, dir string) {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "mod", "init", "example")
	run(t, dir, "mod", "edit", "-replace", module+"="+here, "-require", module+"@v0.1.0")
	run(t, dir, "mod", "tidy")
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
