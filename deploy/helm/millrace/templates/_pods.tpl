{{- /* A set of pods with volumes of their own. Context: root, role (server, gateway or engine), replicas (absent: the autoscaler's). */ -}}
{{- define "millrace.pods" -}}
{{- $ := .root -}}
{{- $v := $.Values -}}
{{- $name := printf "%s-%s" (include "millrace.name" $) .role -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $name }}
  labels:
    {{- include "millrace.labels" $ | nindent 4 }}
    app.kubernetes.io/component: {{ .role }}
spec:
  serviceName: {{ include "millrace.name" $ }}-pods
  {{- if hasKey . "replicas" }}
  replicas: {{ .replicas }}
  {{- end }}
  podManagementPolicy: Parallel
  selector:
    matchLabels:
      {{- include "millrace.selector" $ | nindent 6 }}
      app.kubernetes.io/component: {{ .role }}
  template:
    metadata:
      labels:
        {{- include "millrace.labels" $ | nindent 8 }}
        app.kubernetes.io/component: {{ .role }}
        {{- with $v.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        checksum/settings: {{ toYaml $v.settings | sha256sum }}
        {{- with $v.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      # The time of preStop, server.drain_timeout_ms, and 20 s for the last bytes, a handover and the journal.
      {{- $drain := dig "server" "drain_timeout_ms" 20000 $v.settings | int }}
      terminationGracePeriodSeconds: {{ add 5 20 (div (add $drain 999) 1000) }}
      # Variables of services (MILLRACE_PORT=tcp://...) look like settings.
      enableServiceLinks: false
      automountServiceAccountToken: false
      {{- with $v.serviceAccountName }}
      serviceAccountName: {{ . }}
      {{- end }}
      {{- with $v.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with $v.image.pullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        # Only a new volume gets the group: the files that the server makes stay its own. A cached file that the group may write is
        # not believed.
        fsGroupChangePolicy: OnRootMismatch
        seccompProfile: {type: RuntimeDefault}
      {{- if $v.model }}
      initContainers:
        - name: pull
          image: {{ include "millrace.image" $ }}
          imagePullPolicy: {{ $v.image.pullPolicy }}
          # What is on the volume is not fetched again, and the hub is not asked.
          args: ["pull", "--if-absent", {{ $v.model | quote }}]
          {{- $env := include "millrace.environment" $ | trim }}
          {{- if $env }}
          env: {{- $env | nindent 12 }}
          {{- end }}
          {{- with $v.envFrom }}
          envFrom: {{- toYaml . | nindent 12 }}
          {{- end }}
          resources: {{- toYaml (ternary $v.cluster.gatewayResources $v.resources (eq .role "gateway")) | nindent 12 }}
          volumeMounts:
            - {name: data, mountPath: /data}
            - {name: tmp, mountPath: /tmp}
            {{- with $v.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          securityContext: {{- include "millrace.confined" $ | nindent 12 }}
      {{- end }}
      containers:
        - name: millrace
          image: {{ include "millrace.image" $ }}
          imagePullPolicy: {{ $v.image.pullPolicy }}
          args:
            - serve
            {{- with $v.model }}
            - {{ . | quote }}
            {{- end }}
            - --config=/etc/millrace/millrace.yaml
          env:
            {{- include "millrace.access" (dict "root" $ "role" .role) | trim | nindent 12 }}
            {{- with include "millrace.environment" $ | trim }}
            {{- . | nindent 12 }}
            {{- end }}
          {{- with $v.envFrom }}
          envFrom: {{- toYaml . | nindent 12 }}
          {{- end }}
          ports: [{name: http, containerPort: 8420}]
          # A pod that ends gets no new requests for some seconds before it refuses them.
          lifecycle:
            preStop:
              sleep: {seconds: 5}
          startupProbe:
            httpGet: {path: "{{ include "millrace.prefix" $ }}/health/readiness", port: http, scheme: {{ include "millrace.scheme" $ }}}
            periodSeconds: 2
            timeoutSeconds: 5
            failureThreshold: {{ mul 30 (int $v.startupMinutes) }}
          readinessProbe:
            httpGet: {path: "{{ include "millrace.prefix" $ }}/health/readiness", port: http, scheme: {{ include "millrace.scheme" $ }}}
            periodSeconds: 5
            timeoutSeconds: 5
            failureThreshold: 2
          # Fails while an engine is stuck (server.engine_stall_s), too.
          livenessProbe:
            httpGet: {path: "{{ include "millrace.prefix" $ }}/health/liveness", port: http, scheme: {{ include "millrace.scheme" $ }}}
            periodSeconds: 10
            timeoutSeconds: 10
            failureThreshold: 3
          resources: {{- toYaml (ternary $v.cluster.gatewayResources $v.resources (eq .role "gateway")) | nindent 12 }}
          volumeMounts:
            - {name: data, mountPath: /data}
            - {name: tmp, mountPath: /tmp}
            - {name: settings, mountPath: /etc/millrace, readOnly: true}
            {{- if and $v.keysSecret (ne .role "engine") }}
            - {name: keys, mountPath: /etc/millrace-keys, readOnly: true}
            {{- end }}
            {{- if and $v.cluster.enabled $v.cluster.nkeySecret }}
            - {name: nkey, mountPath: /etc/millrace-nkey, readOnly: true}
            {{- end }}
            {{- if and $v.cluster.enabled $v.cluster.gatewaysSecret (eq .role "gateway") }}
            - {name: gateways, mountPath: /etc/millrace-gateways, readOnly: true}
            {{- end }}
            {{- with $v.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          securityContext: {{- include "millrace.confined" $ | nindent 12 }}
      volumes:
        - name: settings
          configMap: {name: {{ include "millrace.name" $ }}}
        - name: tmp
          emptyDir: {}
        {{- if not $v.persistence.enabled }}
        - name: data
          emptyDir: {}
        {{- end }}
        {{- if and $v.keysSecret (ne .role "engine") }}
        - name: keys
          secret:
            secretName: {{ $v.keysSecret }}
            defaultMode: 0440
            items: [{key: keys.yaml, path: keys.yaml}]
        {{- end }}
        {{- if and $v.cluster.enabled $v.cluster.nkeySecret }}
        - name: nkey
          secret:
            secretName: {{ $v.cluster.nkeySecret }}
            defaultMode: 0440
            items: [{key: {{ .role }}.seed, path: seed}]
        {{- end }}
        {{- if and $v.cluster.enabled $v.cluster.gatewaysSecret (eq .role "gateway") }}
        - name: gateways
          secret:
            secretName: {{ $v.cluster.gatewaysSecret }}
            defaultMode: 0440
            items: [{key: gateways.secret, path: secret}]
        {{- end }}
        {{- with $v.volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $v.topologySpreadConstraints }}
      topologySpreadConstraints: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $v.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $v.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $v.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
  {{- if $v.persistence.enabled }}
  volumeClaimTemplates:
    - metadata:
        name: data
      spec:
        accessModes: {{- toYaml $v.persistence.accessModes | nindent 10 }}
        {{- with $v.persistence.storageClass }}
        storageClassName: {{ . }}
        {{- end }}
        resources:
          requests:
            storage: {{ $v.persistence.size }}
  {{- end }}
{{- end -}}

{{- /* Rights of a container. */ -}}
{{- define "millrace.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Who may do what, and the part in a cluster. Engines see no key of a client: what they answer over HTTP is for operators. */ -}}
{{- define "millrace.access" -}}
{{- $v := .root.Values -}}
{{- if eq .role "engine" }}
- {name: MILLRACE_SERVER_NO_AUTH, value: "true"}
{{- else if $v.keysSecret }}
- {name: MILLRACE_KEYS_FILE, value: /etc/millrace-keys/keys.yaml}
{{- end }}
{{- if and $v.apiKeySecret (ne .role "engine") }}
- name: MILLRACE_API_KEY
  valueFrom:
    secretKeyRef: {name: {{ $v.apiKeySecret }}, key: api-key}
{{- end }}
{{- if $v.cluster.enabled }}
- name: POD_IP
  valueFrom:
    fieldRef: {fieldPath: status.podIP}
- {name: MILLRACE_CLUSTER_ROLE, value: {{ .role }}}
- {name: MILLRACE_CLUSTER_NAME, value: {{ $v.cluster.name | quote }}}
- {name: MILLRACE_CLUSTER_SERVERS, value: {{ join "," $v.cluster.servers | quote }}}
- {name: MILLRACE_CLUSTER_ADDRESS, value: {{ $v.cluster.address | quote }}}
{{- if $v.cluster.nkeySecret }}
- {name: MILLRACE_CLUSTER_NKEY_FILE, value: /etc/millrace-nkey/seed}
{{- end }}
{{- if and $v.cluster.gatewaysSecret (eq .role "gateway") }}
- {name: MILLRACE_CLUSTER_SECRET_FILE, value: /etc/millrace-gateways/secret}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The hub, proxies, and the operator's own variables; also for the pull. */ -}}
{{- define "millrace.environment" -}}
{{- with .Values.hub }}
{{- if .tokenSecret }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ .tokenSecret }}, key: token}
{{- end }}
{{- if .endpoint }}
- {name: HF_ENDPOINT, value: {{ .endpoint | quote }}}
{{- end }}
{{- if .offline }}
- {name: HF_HUB_OFFLINE, value: "1"}
{{- end }}
{{- end }}
{{- with .Values.proxy }}
{{- if .http }}
- {name: HTTP_PROXY, value: {{ .http | quote }}}
{{- end }}
{{- if .https }}
- {name: HTTPS_PROXY, value: {{ .https | quote }}}
{{- end }}
{{- if .exceptions }}
- {name: NO_PROXY, value: {{ .exceptions | quote }}}
{{- end }}
{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}
