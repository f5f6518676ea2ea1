package driver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/dra/claim"
	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/internal/wholefile"
)

// The helper writes for each request of a claim a file with the attributes of its devices
// (KEP-5304), and a CDI file that mounts it. It does not write them again, and a
// container that starts again cannot without the CDI file. So there is a copy of each CDI
// file in the driver's own directory, which outlives the spec directory.
const metadataCopies = "metadata-cdi"

// metadataMax is the size of such a file at most, in bytes; it has half a kilobyte.
const metadataMax = 1 << 20

// metadataFiles are what the helper writes its files with.
func (d *Driver) metadataFiles() kubeletplugin.MetadataFileOperations {
	return kubeletplugin.MetadataFileOperations{
		WriteFile: func(name string, data []byte, _ os.FileMode) error {
			if filepath.Dir(name) != filepath.Clean(d.Claims.SpecDir) {
				return wholefile.Replace(name, data)
			}
			if err := wholefile.MakeDir(d.copies()); err != nil {
				return err
			}
			if err := wholefile.Replace(d.copyOf(name), data); err != nil {
				return err
			}
			return wholefile.Replace(name, data)
		},
		Remove: func(name string) error {
			err := os.Remove(name)
			if copyErr := os.Remove(d.copyOf(name)); !host.IsAbsent(copyErr) {
				err = errors.Join(err, copyErr)
			}
			return err
		},
	}
}

func (d *Driver) copies() string            { return filepath.Join(dataDir(d.KubeletDir), metadataCopies) }
func (d *Driver) copyOf(name string) string { return filepath.Join(d.copies(), filepath.Base(name)) }
func (d *Driver) placeOf(copy string) string {
	return filepath.Join(d.Claims.SpecDir, filepath.Base(copy))
}

// metadataCopiesOf are the copies of a claim's CDI files, "" of all claims'.
func (d *Driver) metadataCopiesOf(uid string) []string {
	entries, _ := os.ReadDir(d.copies()) // without it there are none
	var all []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), dra.DriverName+"_metadata_"+uid) && filepath.Ext(e.Name()) == ".json" {
			all = append(all, filepath.Join(d.copies(), e.Name()))
		}
	}
	return all
}

// missingMetadata reports whether a CDI file of the helper's is not where it should be.
func (d *Driver) missingMetadata() bool {
	for _, file := range d.metadataCopiesOf("") {
		if _, err := os.Lstat(d.placeOf(file)); host.IsAbsent(err) {
			return true
		}
	}
	return false
}

// restoreMetadata puts the helper's CDI files back that are gone, and removes those of
// claims that are not prepared any more.
func (d *Driver) restoreMetadata() error {
	files := d.metadataCopiesOf("") // before the claims: a file is written after its claim
	claims, err := d.Claims.Claims()
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, c := range claims {
		for _, file := range d.metadataCopiesOf(c.UID + "_") {
			known[file] = true
		}
	}
	var all error
	for _, file := range files {
		if !known[file] {
			all = errors.Join(all, d.metadataFiles().Remove(d.placeOf(file)))
			continue
		}
		if _, err := os.Lstat(d.placeOf(file)); !host.IsAbsent(err) {
			continue
		}
		data, err := wholefile.Read(file, metadataMax)
		if err == nil {
			err = wholefile.Replace(d.placeOf(file), data)
		}
		all = errors.Join(all, err)
	}
	return all
}

// forgetMetadata removes what the helper has written for a claim that the kubelet does
// not give back.
func (d *Driver) forgetMetadata(c *claim.Record) error {
	var all error
	for _, file := range d.metadataCopiesOf(c.UID + "_") {
		if err := d.metadataFiles().Remove(d.placeOf(file)); !host.IsAbsent(err) {
			all = errors.Join(all, err)
		}
	}
	return errors.Join(all, os.RemoveAll(filepath.Join(dataDir(d.KubeletDir), "dra-device-metadata", c.Namespace+"_"+c.Name)))
}
