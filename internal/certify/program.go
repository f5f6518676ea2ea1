package certify

import (
	"bytes"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// programChecks are HW-31 to HW-38: XRT and HyperDex in a container. Most of it shows only
// when a program runs.
func programChecks() []Check {
	return []Check{
		{"HW-31", "XRT numbers the cards whose node is there from 0, in the order of PCI addresses, those that are ready first.",
			"xbutil examine in a container with lpu6-7-0-1", nil},
		{"HW-32", "XRT skips a card whose node is not there, and has no variable that hides a card.",
			"xbutil examine in a container with lpu0", nil},
		{"HW-33", "XRT is in /opt/xilinx/xrt, and XILINX_XRT has to name it in a container.",
			"a host with XRT; that the variable is needed shows a container without it", xrtPlace},
		{"HW-34", "HyperDex is below /opt/hyperdex, or since 1.5 a Python package, and a container can use it read-only.",
			"run a model in a container: it says nothing of a read-only file system", hyperdexPlace},
		{"HW-35", "HyperDex needs a high limit of locked memory, and no other right.",
			"podman run --ulimit memlock=-1 --device hyperaccel.ai/lpu=lpu0 IMAGE with a model", nil},
		{"HW-36", "HyperDex reads NUM_LPU_DEVICES, and no program reads LPU_VISIBLE_DEVICES or LPU_RING_ORDER.",
			"HyperDex on the host; of an image: strings -a FILE | grep 'LPU_' on its libraries", variables},
		{"HW-37", "Two programs cannot use one LPU at a time.", "start a second program on an LPU that is in use", nil},
		{"HW-38", "A program loads the bitstream that it needs over the render node, and one bitstream fits each card.",
			"after a cold start (idle): cat xclbinuuid, then a model in a container with lpu0", nil},
	}
}

// xrtPlace finds XRT's core library where lpuctl looks for it, or elsewhere.
func xrtPlace(f *Facts) answer {
	var t tally
	const home = "/opt/xilinx/xrt"
	libraries := withPrefix(f.names(home+"/lib"), "libxrt_core.so")
	if len(libraries) > 0 {
		t.see(true, f.tree.Shown(home+"/lib"), strings.Join(libraries, " "))
		return t.answer()
	}
	for _, dir := range []string{"/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/local/lib", "/usr/local/lib64"} {
		if others := withPrefix(f.names(dir), "libxrt_core.so"); len(others) > 0 {
			t.see(false, f.tree.Shown(dir), strings.Join(others, " "))
		}
	}
	if f.tree.Exists(home) && len(t.bad) == 0 {
		t.see(false, f.tree.Shown(home+"/lib/libxrt_core.so*"), none+", and the directory is")
	}
	return t.answer()
}

const hyperdexHome = "/opt/hyperdex"

// hyperdexPlace can only confirm: where the directory is missing, HyperDex may be a
// Python package, or not installed.
func hyperdexPlace(f *Facts) answer {
	var t tally
	if names := f.names(hyperdexHome); len(names) > 0 {
		t.see(true, f.tree.Shown(hyperdexHome), fmt.Sprintf("%d entries", len(names)))
	}
	return t.answer()
}

// Limits of the search for variables: directories below each other, files, and bytes of
// one file.
const (
	searchDepth = 6
	searchFiles = 2000
	fileMost    = 64 << 20
)

// variables searches the files of HyperDex for names of variables. lpuctl's own table is
// no program.
func variables(f *Facts) answer {
	var t tally
	left := searchFiles
	f.search(hyperdexHome, searchDepth, &left, func(p string, data []byte) {
		for _, name := range []string{"LPU_VISIBLE_DEVICES", "LPU_RING_ORDER"} {
			if bytes.Contains(data, []byte(name)) {
				t.see(false, f.tree.Shown(p), name)
			}
		}
		if bytes.Contains(data, []byte("NUM_LPU_DEVICES")) {
			t.see(true, f.tree.Shown(p), "NUM_LPU_DEVICES")
		}
	})
	return t.answer()
}

// search reads the regular files below a directory. Links are not followed.
func (f *Facts) search(dir string, depth int, left *int, read func(p string, data []byte)) {
	if depth == 0 {
		return
	}
	for _, name := range f.names(dir) {
		p := path.Join(dir, name)
		st, err := f.tree.Lstat(p)
		if err != nil || *left == 0 {
			continue
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFDIR:
			f.search(p, depth-1, left, read)
		case unix.S_IFREG:
			*left--
			if data, err := f.tree.Read(p, fileMost); err == nil {
				read(p, data)
			}
		}
	}
}
