package cdi

import (
	"errors"
	"io/fs"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Clash is a *Conflict if another file than path, in its directory, defines one of the devices of a spec.
func Clash(path string, spec *specs.Spec) error {
	conflict, err := File{Path: path, kind: spec.Kind}.conflict(spec)
	if conflict != nil {
		return conflict
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
