package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// bom is as much of CycloneDX 1.5 as build information can fill.
type bom struct {
	Format       string      `json:"bomFormat"`
	SpecVersion  string      `json:"specVersion"`
	SerialNumber string      `json:"serialNumber"`
	Version      int         `json:"version"`
	Metadata     metadata    `json:"metadata"`
	Components   []component `json:"components"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Licenses   []license  `json:"licenses"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type license struct {
	Expression string `json:"expression"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func writeSBOM(out io.Writer, program, version string, info *buildinfo.BuildInfo, modules []module) error {
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	digest := sha256.Sum256(data)
	lpuctl := describe("application", module{path: info.Main.Path, version: version, license: "Apache-2.0"})
	lpuctl.Hashes = []hash{{"SHA-256", hex.EncodeToString(digest[:])}}
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" {
			lpuctl.Properties = append(lpuctl.Properties, property{"go:" + strings.ToLower(s.Key), s.Value})
		}
	}
	document := bom{
		Format: "CycloneDX", SpecVersion: "1.5", SerialNumber: "urn:uuid:" + uuid(digest), Version: 1,
		Metadata: metadata{Timestamp: time.Unix(seconds, 0).UTC().Format(time.RFC3339), Component: lpuctl},
	}
	for _, m := range modules {
		document.Components = append(document.Components, describe("library", m))
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(document)
}

func describe(kind string, m module) component {
	purl := "pkg:golang/" + m.path + "@" + m.version
	c := component{Type: kind, Ref: purl, Name: m.path, Version: m.version, Licenses: []license{{m.license}}, PURL: purl}
	if m.sum != "" {
		c.Properties = []property{{"go:sum", m.sum}}
	}
	return c
}

// uuid makes a UUID (version 8, of one's own making) of what the document is about, so that equal programs have
// equal documents.
func uuid(digest [sha256.Size]byte) string {
	b := digest[:16]
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
