package txn_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestImports_AreTheCoreAndTheStandardLibrary keeps the package small: programs that use one store do
// not get the drivers of the others.
func TestImports_AreTheCoreAndTheStandardLibrary(t *testing.T) {
	const module = "github.com/isotone/isotone"
	allowed := map[string][]string{
		".":               {module, module + "/txn/internal/mutant"},
		"check":           {},
		"internal/mutant": {},
		"memory":          {module, module + "/txn"},
		"redisstore":      {module, module + "/txn", "github.com/redis/go-redis/v9"},
		"pgstore": {module, module + "/txn", module + "/txn/internal/mutant", "github.com/jackc/pgx/v5",
			"github.com/jackc/pgx/v5/pgconn", "github.com/jackc/pgx/v5/pgxpool"},
		"boltstore": {module, module + "/txn", module + "/txn/internal/mutant", "go.etcd.io/bbolt"},
		"storetest": {module, module + "/txn"},
	}
	for dir, list := range allowed {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range file.Imports {
				path, _ := strconv.Unquote(spec.Path.Value)
				first, _, _ := strings.Cut(path, "/")
				ok := !strings.Contains(first, ".")
				for _, other := range list {
					ok = ok || path == other
				}
				if !ok {
					t.Errorf("%s imports %s", name, path)
				}
			}
		}
	}
}

func TestFiles_AreShort(t *testing.T) {
	const linesMax = 540
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.PackageClauseOnly)
		if err == nil && fset.File(file.FileStart).LineCount() > linesMax {
			t.Errorf("%s is longer than %d lines", name, linesMax)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
