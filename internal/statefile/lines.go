package statefile

import (
	"bytes"
	"encoding/json"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Lines is a file with a JSON document a line, which grows at its end. A line that has no
// end was not written whole.
type Lines struct {
	Path string
	// Write is for tests: it writes in place of [os.File.Write].
	Write func(*os.File, []byte) (int, error)

	file *os.File // to append; nil: it is closed
	size int64    // that the file has if no other program writes to it
}

// AddLine adds a line to a text.
func AddLine(text *bytes.Buffer, line any) error {
	data, err := json.Marshal(line)
	text.Write(append(data, '\n'))
	return err
}

// Open opens the file to append to it. The flags are added to those of open(2) that this
// takes; a file that is made has mode 0600. A last line without an end is taken away.
func (l *Lines) Open(flags int) error {
	l.Close()
	f, err := os.OpenFile(l.Path, os.O_RDWR|os.O_APPEND|unix.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return err
	}
	size, err := whole(f)
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		f.Close()
		return err
	}
	l.file, l.size = f, size
	return nil
}

// whole is how many bytes the lines have that were written whole.
func whole(f *os.File) (size int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	block := make([]byte, 4096)
	for end := info.Size(); end > 0; end -= int64(len(block)) {
		from := max(0, end-int64(len(block)))
		n, err := f.ReadAt(block[:end-from], from)
		if err != nil && err != io.EOF {
			return 0, err
		}
		if i := bytes.LastIndexByte(block[:n], '\n'); i >= 0 {
			return from + int64(i) + 1, nil
		}
	}
	return 0, nil
}

// Append writes lines in one write. After an error the file is closed.
func (l *Lines) Append(text []byte) error {
	write := (*os.File).Write
	if l.Write != nil {
		write = l.Write
	}
	n, err := write(l.file, text)
	l.size += int64(n)
	if err != nil {
		l.Close()
	}
	return err
}

// IsOpen reports whether lines can be appended.
func (l *Lines) IsOpen() bool { return l.file != nil }

// Size is how many bytes the file has.
func (l *Lines) Size() int64 { return l.size }

// Lost reports whether the file is closed, or not what was written.
func (l *Lines) Lost() bool {
	if l.file == nil {
		return true
	}
	there, err := os.Lstat(l.Path)
	opened, unread := l.file.Stat()
	return err != nil || unread != nil || !os.SameFile(there, opened) || there.Size() != l.size
}

// Close closes the file.
func (l *Lines) Close() {
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}
