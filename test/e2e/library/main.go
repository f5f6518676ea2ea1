// Program library prints, as JSON, the devices that one release of the CDI library finds in each of some spec directories. Which
// release that is says the go.mod file that the program is built with.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

func main() {
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
