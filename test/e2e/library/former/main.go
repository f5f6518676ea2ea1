// Program former is the program above it with the last release of the CDI library under its former path.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/container-orchestrated-devices/container-device-interface/pkg/cdi"
	oci "github.com/opencontainers/runtime-spec/specs-go"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "-" {
		answer()
		return
	}
	found := map[string][]string{}
	for _, dir := range os.Args[1:] {
		found[dir] = devices(dir)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// devices are the names of the devices in a directory; "crash" or "refused" if the library does so with a file in it.
func devices(dir string) (names []string) {
	defer func() {
		if recover() != nil {
			names = []string{"crash"}
		}
	}()
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
	if err != nil || len(cache.GetErrors()) > 0 {
		return []string{"refused"}
	}
	return cache.ListDevices()
}

// answer says of each list of spec directories in the input what containers get.
func answer() {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var dirs []string
		if in.Decode(&dirs) != nil || out.Encode(injected(dirs)) != nil {
			return
		}
	}
}

// injected are the numbers of the nodes that a container gets with each device.
func injected(dirs []string) map[string][]string {
	all := map[string][]string{}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return all
	}
	for _, name := range cache.ListDevices() {
		container := &oci.Spec{}
		all[name] = []string{}
		if _, err := cache.InjectDevices(container, name); err != nil || container.Linux == nil {
			continue
		}
		for _, d := range container.Linux.Devices {
			all[name] = append(all[name], fmt.Sprintf("%d:%d", d.Major, d.Minor))
		}
	}
	return all
}
