package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hyperaccel/lpuctl/internal/host"
	"github.com/hyperaccel/lpuctl/test/plant"
)

// archive packs entries behind an index.
func archive(t testing.TB, index string, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	add := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	add(tar.Header{Name: indexName}, []byte(index))
	for _, h := range headers {
		data := make([]byte, h.Size)
		add(h, data)
	}
	if err := errors.Join(w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const goodIndex = `{"apiVersion":"lpuctl.hyperaccel.ai/v1alpha1","kind":"Bundle","format":1,"files":{}}`

func link(name, target string) tar.Header {
	return tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}
}

// TestReadRefuses: what is no bundle, or would do harm, is refused with the reason.
func TestReadRefuses(t *testing.T) {
	good := archive(t, goodIndex, tar.Header{Name: "root/a", Size: 5000})
	var many []tar.Header
	for i := range 6 {
		many = append(many, tar.Header{Name: fmt.Sprint("root/", i), Size: EntryMax})
	}
	for name, c := range map[string]struct {
		data []byte
		want string // in the error; "": none
	}{
		"good":                 {good, ""},
		"a link within":        {archive(t, goodIndex, link("root/b/c", "../a")), ""},
		"empty":                {nil, "not a bundle"},
		"text":                 {[]byte("root:x:0"), "not a bundle"},
		"another archive":      {archive(t, `{"kind":"Other","format":1}`), "not a bundle"},
		"newer":                {archive(t, strings.Replace(goodIndex, `"format":1`, `"format":2`, 1)), "take a newer lpuctl"},
		"cut":                  {good[:len(good)/2], "ends too early"},
		"cut before the sum":   {good[:len(good)-4], "ends too early"},
		"an absolute name":     {archive(t, goodIndex, tar.Header{Name: "/etc/passwd"}), "an absolute name"},
		"..":                   {archive(t, goodIndex, tar.Header{Name: "root/../../x"}), "leads elsewhere"},
		"a part of its own":    {archive(t, goodIndex, tar.Header{Name: "etc/x"}), "does not know"},
		"twice":                {archive(t, goodIndex, tar.Header{Name: "root/a"}, tar.Header{Name: "root/a"}), "there twice"},
		"a link out":           {archive(t, goodIndex, link("root/a", "../../etc")), "out of the root"},
		"an absolute link":     {archive(t, goodIndex, link("root/a", "/etc")), "out of the root"},
		"out by way of a link": {archive(t, goodIndex, link("root/d", "."), link("root/x/y", "../d/../..")), "out of the root"},
		"links in a circle":    {archive(t, goodIndex, link("root/a", "b"), link("root/b", "a")), "on and on"},
		"below a link":         {archive(t, goodIndex, link("root/a", "b"), tar.Header{Name: "root/a/x"}), "no directory"},
		"a device":             {archive(t, goodIndex, tar.Header{Name: "root/a", Typeflag: tar.TypeChar}), "neither a file"},
		"a hard link":          {archive(t, goodIndex, tar.Header{Name: "root/a", Linkname: "b", Typeflag: tar.TypeLink}), "neither a file"},
		"too large an entry":   {archive(t, goodIndex, tar.Header{Name: "root/a", Size: EntryMax + 1}), "larger than an entry"},
		"too much in all":      {archive(t, goodIndex, many...), "bytes unpacked"},
	} {
		_, err := Read(bytes.NewReader(c.data))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSecretsStayOut: of 300 secrets that are planted where secrets are, none is in the bytes of the bundle, nor are names.
func TestSecretsStayOut(t *testing.T) {
	root := t.TempDir()
	var secrets []string
	secret := func(i int) string {
		s := fmt.Sprintf("s3cr3t%dQz%dx", i, i*7919%1009)
		secrets = append(secrets, s)
		return s
	}
	var unit, toml, json, spec, own, state, lines, broken strings.Builder
	for i := range 25 {
		fmt.Fprintf(&broken, " \"token %d\": [%s, \"%s\", {{'%s'\n", i, secret(1000+i), secret(1100+i), secret(1200+i))
		fmt.Fprintf(&own, "foreign%d: {kind: \"%s\"}\n", i, secret(1300+i))
		fmt.Fprintf(&unit, "Environment=\"TOKEN_%d=%s\" LPU_NAME=x\nExecStart=/usr/bin/serve --password=%s\\\n  --more %[2]s\n",
			i, secret(i), secret(100+i))
		fmt.Fprintf(&toml, "[plugins.\"registry\".auth%d]\nusername = \"kim\"\npassword = \"%s\" # %[2]s\n", i, secret(200+i))
		fmt.Fprintf(&json, ", \"key%d\": {\"auth\": [\"%s\"]}", i, secret(300+i))
		fmt.Fprintf(&spec, "    - API_%d=%s # %[2]s\n", i, secret(400+i))
		fmt.Fprintf(&own, "# the password is %s\n", secret(500+i))
		fmt.Fprintf(&state, ", {\"user\": \"kim(1000)\", \"command\": \"train --key %s\"}", secret(600+i))
		fmt.Fprintf(&lines, "time=2026 level=INFO msg=\"served\" error=\"token=%s refused\" argument=%[1]s\npassword %[1]s\n", secret(700+i))
	}
	if len(secrets) != 300 {
		t.Fatal(len(secrets))
	}
	for name, text := range map[string]string{
		"etc/systemd/system/docker.service":   "[Service]\n" + unit.String(),
		"etc/containerd/config.toml":          "version = 2\n" + toml.String() + "[plugins.\"io.containerd.grpc.v1.cri\"]\nenable_cdi = true\n",
		"etc/containers/containers.conf":      "[engine]\ncdi_spec_dirs = [\"/etc/cdi\"]\n" + toml.String(),
		"etc/docker/daemon.json":              `{"features": {"cdi": true}` + json.String() + "}",
		"etc/lpuctl/config.yaml":              "cdi: # kim\n  kind: hyperaccel.ai/lpu\n" + own.String(),
		"run/lpuctl/leases.json":              `{"leases": [{}` + state.String() + "]}",
		"etc/systemd/system/docker.service.d": "",
		"etc/cdi/broken.yaml":                 "kind: x\n" + broken.String(),
		"etc/cdi/broken.json":                 "{" + broken.String(),
		"etc/cdi/second.yaml":                 "kind: x\n---\nsecond: document\n" + broken.String(),
		"etc/cdi/escapes.json":                `{"kind": "x", "other": {"name": "\u003c` + secrets[0] + `\""}}`,
		"etc/containers/broken.conf":          "[x]\n" + broken.String(),
		"etc/docker/broken.json":              broken.String(),
		"etc/lpuctl/ring.json":                broken.String(),
		"run/lpuctl/health.json":              `{"boot": "` + broken.String(),
		"etc/cdi/other.yaml": "cdiVersion: 0.6.0\nkind: other.org/card\ncontainerEdits:\n  env:\n    - LPU_X=kept-as-it-is\n" +
			spec.String(),
	} {
		if text != "" {
			plant.File(t, filepath.Join(root, name), text)
		}
	}
	c := NewCollector(host.Root(root), NewNames([]string{"server7.example.org"}, []string{"kim"}))
	c.Specs("/etc/cdi", EntryMax)
	c.State("/run/lpuctl")
	c.Table("/etc/lpuctl/ring.json")
	c.Own("/etc/lpuctl/config.yaml", []string{"cdi", "kind"})
	for _, p := range []string{
		"/etc/systemd/system/*.service", "/etc/containerd/config.toml", "/etc/containers/*.conf", "/etc/docker/*.json",
	} {
		c.Config(p)
	}
	c.Journal("lpuctl-serve", strings.Split(lines.String()+"time=2026 level=INFO msg=\"on server7 for kim at 10.1.2.3\"", "\n"))
	b := c.Bundle(Index{Made: time.Now()})
	packed, err := b.Pack()
	if err != nil {
		t.Fatal(err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"etc/cdi/broken.yaml", "etc/cdi/broken.json", "etc/cdi/second.yaml", "etc/cdi/escapes.json", "etc/containers/broken.conf",
		"etc/docker/broken.json", "etc/lpuctl/ring.json", "etc/lpuctl/config.yaml", "run/lpuctl/health.json",
	} {
		if e := b.Entries["root/"+name]; e == nil || len(e.Data) == 0 {
			t.Errorf("%s is not in the bundle", name)
		}
	}
	for _, s := range append(secrets, "kim", "server7", "example.org", "10.1.2.3") {
		if at := bytes.Index(text, []byte(s)); at >= 0 {
			t.Errorf("%s is in the bundle: %q", s, text[max(0, at-60):at+20])
		}
	}
	for _, want := range []string{
		"enable_cdi = true", "cdi_spec_dirs", `"cdi": true`, "LPU_X=kept-as-it-is", "API_3=left out", "kind: hyperaccel.ai/lpu",
		"user-1(1000)", "ExecStart=/usr/bin/serve", "host-", "LPU_NAME=x", `msg="served"`,
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("%q is not in the bundle", want)
		}
	}
}

// TestUnpackKeepsWhatFilesWere: a device is one in a replay, and a read that failed fails.
func TestUnpackKeepsWhatFilesWere(t *testing.T) {
	b, err := Read(bytes.NewReader(archive(t, `{
		"apiVersion":"lpuctl.hyperaccel.ai/v1alpha1","kind":"Bundle","format":1,"boot":"b","sinceBoot":60000000000,
		"files":{"/dev/x":{"mode":8630,"major":226,"minor":128},"/sys/a":{"mode":33188,"errno":5}}}`,
		tar.Header{Name: "root/dev/x"}, tar.Header{Name: "root/sys/a"}, link("root/sys/b", "a"))))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r, err := b.Unpack(dir)
	if err != nil {
		t.Fatal(err)
	}
	end := host.Replay(r)
	tree, err := host.Root(dir).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	st, err := tree.Lstat("/dev/x")
	if err != nil || st.Mode != 8630 || st.Rdev != 226<<8|128 {
		t.Error(st, err)
	}
	if _, err := tree.Line("/sys/a"); err == nil || !strings.Contains(err.Error(), "input/output error") {
		t.Error(err)
	}
	if now := host.Now(); now.Boot != "b" || now.SinceBoot < time.Minute || now.SinceBoot > time.Hour {
		t.Error(now)
	}
	end()
	if st, err := tree.Lstat("/dev/x"); err != nil || st.Mode == 8630 || host.Now().Boot == "b" {
		t.Error("the replay has not ended:", st, err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "sys/b")); err != nil || len(data) > 0 {
		t.Error(data, err)
	}
}

// FuzzRead: whatever is read, what is unpacked stays in its directory.
func FuzzRead(f *testing.F) {
	f.Add([]byte(goodIndex), "root/a", "", []byte("x"))
	f.Add([]byte(goodIndex), "root/a", "../b", []byte(""))
	f.Add([]byte(goodIndex), "root/../../a", "/etc", []byte("y"))
	f.Fuzz(func(t *testing.T, index []byte, name, target string, data []byte) {
		var out bytes.Buffer
		zipped := gzip.NewWriter(&out)
		w := tar.NewWriter(zipped)
		h := &tar.Header{Name: name, Linkname: target, Size: int64(len(data)), Typeflag: tar.TypeReg}
		if target != "" {
			h.Typeflag, h.Size, data = tar.TypeSymlink, 0, nil
		}
		if w.WriteHeader(&tar.Header{Name: indexName, Size: int64(len(index))}) != nil {
			return
		}
		_, _ = w.Write(index)
		if w.WriteHeader(h) != nil {
			return
		}
		_, _ = w.Write(data)
		_, _ = w.Close(), zipped.Close()
		b, err := Read(&out)
		if err != nil {
			return
		}
		above := t.TempDir()
		dir := filepath.Join(above, "in")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		_, _ = b.Unpack(dir)
		if left, err := os.ReadDir(above); err != nil || len(left) != 1 {
			t.Error(left, err)
		}
	})
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestAnswersHaveStandIns: names of users, pods and namespaces have stand-ins in answers, also those that are common words.
func TestAnswersHaveStandIns(t *testing.T) {
	c := NewCollector(host.Root(t.TempDir()), NewNames(nil, nil))
	id := strings.Repeat("0a", 32)
	c.Answer(Pods, []byte(`{"holders": {"0000:01:00.1": "pod team-a/served, container main", "0000:02:00.1": "claim team-a/served (1-2)"}}`))
	c.Answer(Users, []byte(`{"users": [{"command": "served", "container": "`+id+`", "user": "anna", "by": "1000"}]}`))
	for _, want := range []string{
		"pod namespace-1/pod-1, container container-1", "claim namespace-1/claim-1 (1-2)", `"command": "served"`, id, `"user": "user-1"`,
		`"by": "1000"`,
	} {
		if !bytes.Contains(slices.Concat(c.bundle.Entries["answers/pods.json"].Data, c.bundle.Entries["answers/users.json"].Data), []byte(want)) {
			t.Errorf("%s is not in %s", want, c.bundle.Entries["answers/pods.json"].Data)
		}
	}
}
