{{- define "millrace.name" -}}
{{- printf "%s-millrace" .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "millrace.selector" -}}
app.kubernetes.io/name: millrace
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "millrace.labels" -}}
{{ include "millrace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "millrace.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end -}}

{{- /* Where the settings put the server's own paths. */ -}}
{{- define "millrace.prefix" -}}
{{ trimSuffix "/" (dig "server" "api_prefix" "" .Values.settings) }}
{{- end -}}

{{- define "millrace.scheme" -}}
{{ if dig "listener" "tls_cert" "" .Values.settings }}HTTPS{{ else }}HTTP{{ end }}
{{- end -}}

{{- /* The pods that clients reach. */ -}}
{{- define "millrace.door" -}}
{{ if .Values.cluster.enabled }}gateway{{ else }}server{{ end }}
{{- end -}}

{{- /* What contradicts itself is refused with what to do. */ -}}
{{- define "millrace.check" -}}
{{- $v := .Values -}}
{{- if not (or $v.apiKeySecret $v.keysSecret) -}}
{{- fail "name a Secret: apiKeySecret (its key `api-key` has API keys) or keysSecret (its key `keys.yaml` is a file of `millrace keys`)" -}}
{{- end -}}
{{- if $v.cluster.enabled -}}
{{- if not $v.cluster.servers -}}
{{- fail "cluster.servers: a cluster needs NATS servers, such as nats://nats:4222" -}}
{{- end -}}
{{- if not $v.keysSecret -}}
{{- fail "keysSecret: the gateways of a cluster need the same file of keys, and engines must not see keys (apiKeySecret has them in clear)" -}}
{{- end -}}
{{- if and (gt (int $v.cluster.gateways) 1) (not $v.cluster.gatewaysSecret) -}}
{{- fail "cluster.gatewaysSecret: several gateways trust each other by a secret that engines do not have (its key `gateways.secret`: openssl rand -hex 32)" -}}
{{- end -}}
{{- if $v.autoscaling.enabled -}}
{{- fail "autoscaling.enabled: requests of a cluster wait at its gateways; set replicas (engines) and cluster.gateways" -}}
{{- end -}}
{{- else if and (or (gt (int $v.replicas) 1) $v.autoscaling.enabled) (not $v.service.sessionAffinity) -}}
{{- fail "several pods, and a stream is known to its pod only: set cluster.enabled (any pod serves any stream), service.sessionAffinity=ClientIP (a client stays at one pod), or service.sessionAffinity=None (streams are not resumed)" -}}
{{- end -}}
{{- end -}}
