//go:build race

package discovery_test

const raceDetector = true
