{{/* The DaemonSet of .Values.mode. With .draining it is the driver that runs on beside the plugin. */}}
{{- define "lpuctl.daemonset" }}
{{- $hasConfigMap := include "lpuctl.hasConfigMap" . }}
{{- $kubelet := .Values.kubeletDirectory | trimSuffix "/" }}
{{- $hasHostConfig := ne .Values.hostConfig "none" }}
{{- $hasEtc := hasPrefix "/etc/" .Values.hostConfig }}
{{- $dra := eq .Values.mode "dra" }}
{{- /* The port is the plugin's while both run. */}}
{{- $hostPort := ternary nil .Values.metrics.hostPort (default false .draining) }}
{{- $portOfNode := or .Values.hostNetwork $hostPort }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: lpuctl{{ if .draining }}-dra{{ end }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "lpuctl.labels" . | nindent 4 }}
spec:
  selector:
    matchLabels:
      {{- include "lpuctl.labels" . | nindent 6 }}
  updateStrategy:
    rollingUpdate:
      {{- if and $dra (not $portOfNode) }}
      # Old and new instance serve at once, so there is always one that prepares claims.
      maxSurge: 1
      maxUnavailable: 0
      {{- else if and .Values.overlap (not $dra) }}
      # Old and new instance serve at once, so the node never is without LPUs. It goes with --overlap below: without that the new one
      # would wait for the old one, and the rollout for the new one.
      maxSurge: 1
      maxUnavailable: 0
      {{- else }}
      maxUnavailable: 1
      {{- end }}
  template:
    metadata:
      labels:
        {{- include "lpuctl.labels" . | nindent 8 }}
        {{- with .Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- /* With a PodMonitor the annotations would let the pod be read twice. */}}
      {{- $annotations := dict }}
      {{- if not .Values.metrics.podMonitor.enabled }}
      {{- $annotations = dict "prometheus.io/scrape" "true" "prometheus.io/port" (.Values.metrics.port | toString) }}
      {{- end }}
      {{- if and $dra .Values.config }}
      {{- /* The driver reads its configuration when it starts, so another one makes other pods. */}}
      {{- $_ := set $annotations "lpuctl.hyperaccel.ai/config" (.Values.config | toJson | sha256sum) }}
      {{- end }}
      {{- with merge (dict) .Values.podAnnotations $annotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- if $dra }}
      # It publishes the node's slices, and reads the claims of its pods.
      serviceAccountName: lpuctl-dra
      {{- else }}
      # It asks nothing of the API server.
      automountServiceAccountToken: false
      {{- end }}
      enableServiceLinks: false
      {{- if .Values.hostNetwork }}
      hostNetwork: true
      {{- end }}
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: lpuctl{{ if $dra }}-dra{{ end }}
          image: {{ include "lpuctl.image" . }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args:
            - serve
            - --root
            - /host
            - --log-format
            - json
            {{- if and .Values.overlap (not $dra) }}
            - --overlap
            {{- end }}
            {{- if ne (int .Values.metrics.port) 9477 }}
            - --listen
            - :{{ .Values.metrics.port }}
            {{- end }}
            {{- if and (ne .Values.onCdiOff "warn") (not (default false .draining)) }}
            - --on-cdi-off
            - {{ .Values.onCdiOff }}
            {{- end }}
            {{- if not $dra }}
            {{- if .Values.nfd.enabled }}
            - --nfd
            - {{ .Values.nfd.directory | trimSuffix "/" }}/lpuctl
            {{- end }}
            {{- if .Values.podResources.enabled }}
            - --pod-resources
            {{- end }}
            {{- else }}
            {{- if ne $kubelet "/var/lib/kubelet" }}
            - --kubelet-dir
            - {{ $kubelet }}
            {{- end }}
            {{- if .Values.dra.noExecute }}
            - --no-execute
            {{- end }}
            {{- end }}
            {{- with ternary nil .Values.extraArgs (default false .draining) }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          env:
            {{- if not .draining }}
            # Which of plugin and driver hands out the LPUs of the node: this one, and no longer the other if it did before.
            - {name: LPUCTL_OWNER, value: {{ .Values.mode }}}
            {{- end }}
            {{- /* No arguments of serve, so that commands of `kubectl exec` take the same files. Paths of the container, not below --root. */}}
            {{- if .Values.config }}
            - {name: LPUCTL_CONFIG, value: /config/config.yaml}
            {{- end }}
            {{- if .Values.ringTable }}
            - {name: LPUCTL_RING_TABLE, value: /config/ring.yaml}
            {{- end }}
            {{- if $dra }}
            {{- if not (include "lpuctl.hasDefaultSizes" .) }}
            - {name: LPUCTL_SIZES, value: {{ include "lpuctl.draSizes" . | fromJsonArray | join "," | quote }}}
            {{- end }}
            # Whose slices it publishes; and, so that old and new instance have sockets of their own, who it is.
            - name: LPUCTL_NODE_NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
            - name: LPUCTL_POD_UID
              valueFrom:
                fieldRef:
                  fieldPath: metadata.uid
            {{- else if .Values.nfd.enabled }}
            # By the name of its node serve knows which labels of `topology` are its own. It needs no right for that.
            - name: LPUCTL_NODE_NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
            {{- end }}
          ports:
            - name: metrics
              containerPort: {{ .Values.metrics.port }}
              {{- with $hostPort }}
              hostPort: {{ . }}
              {{- end }}
          readinessProbe:
            httpGet: {path: /readyz, port: metrics}
            periodSeconds: 5
          livenessProbe:
            httpGet: {path: /healthz, port: metrics}
            periodSeconds: 20
            failureThreshold: 3
          resources:
            {{- include "lpuctl.resources" . | nindent 12 }}
          securityContext:
            # Root's user id, because the kubelet's directory and the spec's belong to root, and none of root's capabilities.
            runAsUser: 0
            runAsGroup: 0
            privileged: false
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
            seccompProfile: {type: RuntimeDefault}
            {{- with .Values.seLinuxOptions }}
            seLinuxOptions:
              {{- toYaml . | nindent 14 }}
            {{- end }}
          volumeMounts:
            - {name: sys, mountPath: /host/sys, readOnly: true}
            - {name: dev, mountPath: /host/dev, readOnly: true}
            - {name: opt, mountPath: /host/opt, readOnly: true}
            {{- if $hasHostConfig }}
            - {name: config, mountPath: /host/etc/lpuctl, readOnly: true}
            {{- end }}
            {{- if $hasEtc }}
            - {name: static-cdi, mountPath: /host/etc/cdi, readOnly: true}
            {{- end }}
            - {name: cdi, mountPath: /host/var/run/cdi}
            {{- if $dra }}
            # At the paths of the host: the driver tells the kubelet where its socket is, and containers get files from there.
            - {name: plugins, mountPath: {{ $kubelet }}/plugins/lpu.hyperaccel.ai}
            - {name: plugins-registry, mountPath: {{ $kubelet }}/plugins_registry}
            {{- else }}
            - {name: device-plugins, mountPath: /host/var/lib/kubelet/device-plugins}
            {{- end }}
            - {name: state, mountPath: /host/var/lib/lpuctl}
            - {name: leases, mountPath: /host/run/lpuctl, readOnly: true}
            - {name: ring, mountPath: /host/run/lpuctl/ring}
            {{- if $hasConfigMap }}
            {{- /* The whole directory: the kubelet never renews a file that is mounted alone (subPath). */}}
            - {name: config-map, mountPath: /config, readOnly: true}
            {{- end }}
            {{- if and .Values.nfd.enabled (not $dra) }}
            - {name: nfd, mountPath: /host{{ .Values.nfd.directory | trimSuffix "/" }}}
            {{- end }}
            - {name: pod-resources, mountPath: /host/var/lib/kubelet/pod-resources, readOnly: true}
      volumes:
        # What the LPUs are, and their nodes, which are looked at and not opened.
        - {name: sys, hostPath: {path: /sys, type: Directory}}
        - {name: dev, hostPath: {path: /dev, type: Directory}}
        # The ring table of HyperDex, and which of the libraries that containers get there are.
        - {name: opt, hostPath: {path: /opt, type: DirectoryOrCreate}}
        {{- if $hasEtc }}
        # Spec files of others, by which a container could get another LPU.
        - {name: static-cdi, hostPath: {path: /etc/cdi, type: DirectoryOrCreate}}
        {{- end }}
        {{- if $hasHostConfig }}
        # config.yaml and ring.yaml, if there are any.
        - {name: config, hostPath: {path: {{ .Values.hostConfig }}, type: DirectoryOrCreate}}
        {{- end }}
        {{- if $dra }}
        # Those it writes to. state: which claims are prepared, what was published, the latest health of the LPUs and the last ring
        # table that was good, for the next start; which LPUs are cordoned, and whether plugin or driver hands out LPUs.
        {{- else }}
        # Those it writes to. state: the latest health of the LPUs and the last ring table that was good, for the next start,
        # which LPUs are cordoned, and whether plugin or driver hands out LPUs.
        {{- end }}
        - {name: cdi, hostPath: {path: /var/run/cdi, type: DirectoryOrCreate}}
        {{- if $dra }}
        # Its sockets: that on which the kubelet finds it, and that on which it serves.
        - {name: plugins, hostPath: {path: {{ $kubelet }}/plugins/lpu.hyperaccel.ai, type: DirectoryOrCreate}}
        - {name: plugins-registry, hostPath: {path: {{ $kubelet }}/plugins_registry, type: Directory}}
        {{- else }}
        - {name: device-plugins, hostPath: {path: {{ $kubelet }}/device-plugins, type: Directory}}
        {{- end }}
        - {name: state, hostPath: {path: /var/lib/lpuctl, type: DirectoryOrCreate}}
        # Who has leased which LPUs (lpuctl run): no pod gets these.
        - {name: leases, hostPath: {path: /run/lpuctl, type: DirectoryOrCreate}}
        # The ring tables that it makes for containers. Containers mount them.
        - {name: ring, hostPath: {path: /run/lpuctl/ring, type: DirectoryOrCreate}}
        {{- if $hasConfigMap }}
        - {name: config-map, configMap: {name: lpuctl}}
        {{- end }}
        {{- if and .Values.nfd.enabled (not $dra) }}
        # Made if it is missing: pods must get LPUs also where NFD's worker has not run yet.
        - {name: nfd, hostPath: {path: {{ .Values.nfd.directory | trimSuffix "/" }}, type: DirectoryOrCreate}}
        {{- end }}
        # By this it sees which LPUs pods have by {{ ternary "the device plugin" "claims" $dra }}. The directory and not the socket: a kubelet that is
        # restarted makes a new socket. Read-only, which does not keep it from connecting.
        - {name: pod-resources, hostPath: {path: {{ $kubelet }}/pod-resources, type: Directory}}
{{- end }}
