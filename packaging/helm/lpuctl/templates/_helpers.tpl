{{- define "lpuctl.labels" -}}
app.kubernetes.io/name: lpuctl{{ if .draining }}-dra{{ end }}
{{- end }}

{{/* Whether the driver runs. */}}
{{- define "lpuctl.hasDriver" -}}
{{- if or (eq .Values.mode "dra") .Values.dra.draining }}true{{ end -}}
{{- end }}

{{/* The digest counts more than the tag: it cannot be moved. */}}
{{- define "lpuctl.image" -}}
{{- $image := .Values.image -}}
{{- $repository := $image.repository -}}
{{- $digest := $image.digest -}}
{{- if eq .Values.mode "dra" -}}
{{- $repository = printf "%s-dra" $repository -}}
{{- $digest = $image.draDigest -}}
{{- end -}}
{{- if $digest -}}
{{ $repository }}@{{ $digest }}
{{- else -}}
{{ $repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What the mode needs, and over it the values. */}}
{{- define "lpuctl.resources" -}}
{{- $default := dict "requests" (dict "cpu" "20m" "memory" "32Mi") "limits" (dict "memory" "64Mi") -}}
{{- if eq .Values.mode "dra" -}}
{{- $default = dict "requests" (dict "cpu" "20m" "memory" "64Mi") "limits" (dict "memory" "128Mi") -}}
{{- end -}}
{{- mergeOverwrite $default .Values.resources | toYaml -}}
{{- end }}

{{/* The sizes of mode dra, as whole numbers; Helm reads numbers as floating point. */}}
{{- define "lpuctl.draSizes" -}}
{{- $sizes := list -}}
{{- range .Values.dra.sizes }}{{ $sizes = append $sizes (int .) }}{{ end -}}
{{- $sizes | toJson -}}
{{- end }}

{{- define "lpuctl.hasDefaultSizes" -}}
{{- if eq (include "lpuctl.draSizes" .) "[1,2,4,8]" }}true{{ end -}}
{{- end }}

{{/* "1, 2 or 4", of a list of words. */}}
{{- define "lpuctl.or" -}}
{{- if gt (len .) 1 }}{{ join ", " (initial .) }} or {{ end }}{{ last . -}}
{{- end }}

{{- define "lpuctl.hasConfigMap" -}}
{{- if or .Values.config .Values.ringTable }}true{{ end -}}
{{- end }}

{{/* The resource that pods ask for. */}}
{{- define "lpuctl.resource" -}}
{{- dig "serve" "resource" "hyperaccel.ai/lpu" .Values.config -}}
{{- end }}

{{/* What the schema cannot say: values that do not go together. Each would render, and then hang or quietly do something else. */}}
{{- define "lpuctl.refuse" -}}
{{- $v := .Values -}}
{{- if eq $v.mode "dra" -}}
{{- include "lpuctl.refuseOfPlugin" . -}}
{{- else -}}
{{- include "lpuctl.refuseOfDRA" . -}}
{{- end -}}
{{- if and $v.overlap $v.hostNetwork -}}
{{- fail "overlap and hostNetwork exclude each other: the new pod waits for the port of the old one for ever. Set overlap to false, or hostNetwork to false" -}}
{{- end -}}
{{- if and $v.overlap $v.metrics.hostPort -}}
{{- fail "overlap and metrics.hostPort exclude each other: the new pod waits for the port of the old one for ever. Set overlap to false, or metrics.hostPort to null" -}}
{{- end -}}
{{- if and $v.hostNetwork $v.metrics.hostPort (ne (int $v.metrics.hostPort) (int $v.metrics.port)) -}}
{{- fail "metrics.hostPort must be metrics.port, or null, with hostNetwork: the pod has no ports other than those of the node" -}}
{{- end -}}
{{- if and (not $v.overlap) (dig "serve" "overlap" false $v.config) -}}
{{- fail "config.serve.overlap alone is half of an upgrade without a gap: take it out of config, and set overlap to true, which changes the rollout too" -}}
{{- end -}}
{{- if dig "serve" "listen" "" $v.config -}}
{{- fail "config.serve.listen would leave the probes at another port: take it out of config, and set metrics.port" -}}
{{- end -}}
{{- if dig "serve" "nfd" "" $v.config -}}
{{- fail "config.serve.nfd names a file in a directory that is not mounted: take it out of config, and set nfd.enabled and nfd.directory" -}}
{{- end -}}
{{- if dig "serve" "podResources" "" $v.config -}}
{{- fail "config.serve.podResources names a socket that is not mounted: take it out of config, and set podResources.enabled" -}}
{{- end -}}
{{- if dig "serve" "onCdiOff" "" $v.config -}}
{{- fail "config.serve.onCdiOff is a value of its own in the chart: take it out of config, and set onCdiOff" -}}
{{- end -}}
{{- if dig "serve" "pluginDir" "" $v.config -}}
{{- fail "config.serve.pluginDir names a directory that is not mounted: take it out of config, and set kubeletDirectory" -}}
{{- end -}}
{{- if dig "cdi" "specDir" "" $v.config -}}
{{- fail "config.cdi.specDir names a directory that is not mounted: take it out of config. The spec is written to /var/run/cdi" -}}
{{- end -}}
{{- if and $v.ringTable (dig "ring" "table" "" $v.config) -}}
{{- fail "ringTable and config.ring.table exclude each other: only one ring table can count. Leave one of them out" -}}
{{- end -}}
{{- if and $v.config.topology (not $v.nfd.enabled) -}}
{{- fail "config.topology needs nfd.enabled: the labels of the node go into the feature file. Set nfd.enabled to true, or take config.topology out" -}}
{{- end -}}
{{- if hasKey $v.podLabels "app.kubernetes.io/name" -}}
{{- fail "podLabels cannot set app.kubernetes.io/name: the DaemonSet knows its pods by it. Take it out of podLabels" -}}
{{- end -}}
{{- $values := dict
    "--overlap" "overlap" "--listen" "metrics.port" "--config" "config" "--ring-table" "ringTable" "--nfd" "nfd" "--node-name" "nfd"
    "--pod-resources" "podResources.enabled" "--on-cdi-off" "onCdiOff" "--resource" "config.serve.resource"
    "--plugin-dir" "kubeletDirectory" "--owner" "mode" -}}
{{- if eq $v.mode "dra" -}}
{{- $values = dict
    "--listen" "metrics.port" "--config" "config" "--ring-table" "ringTable" "--kubelet-dir" "kubeletDirectory" "--sizes" "dra.sizes"
    "--no-execute" "dra.noExecute" "--on-cdi-off" "onCdiOff" "--owner" "mode" -}}
{{- end -}}
{{- range $v.extraArgs -}}
{{- $flag := splitList "=" . | first -}}
{{- if eq $flag "--root" -}}
{{- fail "extraArgs cannot have --root: the host's directories are mounted at /host. Take it out of extraArgs" -}}
{{- else if eq $flag "--spec-dir" -}}
{{- fail "extraArgs cannot have --spec-dir: only /var/run/cdi is mounted. Take it out of extraArgs" -}}
{{- else if and (eq $v.mode "dra") (has $flag (list "--node-name" "--pod-uid" "--pod-resources")) -}}
{{- fail (printf "extraArgs cannot have %s: mode dra gives it itself. Take it out of extraArgs" $flag) -}}
{{- else if hasKey $values $flag -}}
{{- fail (printf "extraArgs cannot have %s: set the value %s, which changes what belongs to it too" $flag (get $values $flag)) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Values that only the device plugin has, in mode dra: they would quietly do nothing. */}}
{{- define "lpuctl.refuseOfPlugin" -}}
{{- $v := .Values -}}
{{- if $v.dra.draining -}}
{{- fail "dra.draining is of mode plugin: it lets the driver run on beside the plugin. Set dra.draining to false" -}}
{{- end -}}
{{- if $v.overlap -}}
{{- fail "overlap is of mode plugin: instances of the driver always overlap. Set overlap to false" -}}
{{- end -}}
{{- if eq $v.onCdiOff "device-specs" -}}
{{- fail "onCdiOff device-specs is of mode plugin: the driver has no way to hand out LPUs without CDI. Set onCdiOff to fail or warn" -}}
{{- end -}}
{{- if $v.nfd.enabled -}}
{{- fail "nfd.enabled is of mode plugin: the driver writes no feature file. Set nfd.enabled to false" -}}
{{- end -}}
{{- if $v.config.topology -}}
{{- fail "config.topology is of mode plugin: the driver writes no feature file. Take it out of config" -}}
{{- end -}}
{{- if $v.podResources.enabled -}}
{{- fail "podResources.enabled is of mode plugin: the driver always asks the kubelet. Set podResources.enabled to false" -}}
{{- end -}}
{{- if $v.validatingAdmissionPolicy.enabled -}}
{{- fail "validatingAdmissionPolicy is of mode plugin: set validatingAdmissionPolicy.enabled to false, and extendedResources to true, which refuses other sizes too" -}}
{{- end -}}
{{- end }}

{{/* Values that only the driver has, in mode plugin. */}}
{{- define "lpuctl.refuseOfDRA" -}}
{{- $v := .Values -}}
{{- if $v.extendedResources -}}
{{- fail "extendedResources is of mode dra: without the driver nobody has LPUs under these names. Set extendedResources to false, or mode to dra" -}}
{{- end -}}
{{- if $v.dra.noExecute -}}
{{- fail "dra.noExecute is of mode dra. Set dra.noExecute to false, or mode to dra" -}}
{{- end -}}
{{- if not (or $v.dra.draining (include "lpuctl.hasDefaultSizes" .)) -}}
{{- fail "dra.sizes is of mode dra. Take dra.sizes out, or set mode to dra" -}}
{{- end -}}
{{- if and $v.dra.draining $v.hostNetwork -}}
{{- fail "dra.draining and hostNetwork exclude each other: plugin and driver would want one port. Set hostNetwork to false, or wait until no pod has a claim and set dra.draining to false" -}}
{{- end -}}
{{- end }}
