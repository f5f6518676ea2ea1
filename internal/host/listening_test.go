package host

import (
	"os"
	"path/filepath"
	"testing"
)

// TestListening: only sockets that listen and have a path are among them.
func TestListening(t *testing.T) {
	dir := t.TempDir()
	if _, err := Root(dir).Listening(); !IsAbsent(err) {
		t.Errorf("no proc: %v", err)
	}
	file := filepath.Join(dir, "proc/1/net/unix")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	const list = `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0005 01 20001 /run/a.sock
0000000000000000: 00000003 00000000 00000000 0001 03 20002 /run/b.sock
0000000000000000: 00000002 00000000 00010000 0001 01 20003
0000000000000000: 00000002 00000000 00010000 0001 01 20004 @abstract
`
	if err := os.WriteFile(file, []byte(list), 0o644); err != nil {
		t.Fatal(err)
	}
	paths, err := Root(dir).Listening()
	if err != nil || len(paths) != 2 || !paths["/run/a.sock"] || paths["/run/b.sock"] {
		t.Errorf("%v, %v", paths, err)
	}
}
