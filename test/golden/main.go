// golden runs every command of a built lpuctl, and of the lpuctl-dra beside it, in every format, on twelve simulated nodes
// and with broken files, and writes down all that they printed and wrote; then it compares two such runs. With it one sees
// what a change of lpuctl changes for its users.
//
//	go run ./test/golden -lpuctl bin/lpuctl -o DIR
//	go run ./test/golden -compare [-words] OLD NEW
//
// The comparison exits with 3 if something differs on which scripts rely: exit codes, JSON, YAML, name and args
// documents, and the files that lpuctl wrote.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	var r run
	var comparing, words bool
	flag.StringVar(&r.lpuctl, "lpuctl", "bin/lpuctl", "run this `BINARY`")
	flag.StringVar(&r.out, "o", "", "write into this `DIR`, which must not exist")
	flag.StringVar(&r.trees, "trees", "", "keep the simulated nodes in `DIR`, and take those that are there already")
	flag.BoolVar(&comparing, "compare", false, "compare two directories, OLD and NEW")
	flag.BoolVar(&words, "words", false, "print differences in words for people too")
	flag.Parse()
	var err error
	switch {
	case comparing && flag.NArg() == 2:
		err = compare(os.Stdout, flag.Arg(0), flag.Arg(1), words)
	case !comparing && r.out != "" && flag.NArg() == 0:
		err = r.everything()
	default:
		flag.Usage()
		os.Exit(2)
	}
	if errors.Is(err, errDiffers) {
		os.Exit(3)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "golden:", err)
		os.Exit(1)
	}
}

// everything makes the trees where there are none, and runs all commands on copies of them.
func (r *run) everything() error {
	var err error
	if r.lpuctl, err = filepath.Abs(r.lpuctl); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "lpuctl-golden-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(r.work) }()
	if r.trees == "" {
		r.trees = filepath.Join(r.work, "trees")
	}
	if err := os.Mkdir(r.out, 0o755); err != nil {
		return err
	}
	if err := writeTrees(r.trees); err != nil {
		return err
	}
	return r.all()
}
