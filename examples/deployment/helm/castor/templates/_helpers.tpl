{{- define "castor.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "castor.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "castor.labels" -}}
{{ include "castor.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "castor.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "castor.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "castor.hasPools" -}}
{{- if or .Values.pools .Values.poolFiles -}}yes{{- end -}}
{{- end -}}

{{- define "castor.fleetUsd" -}}
{{- if kindIs "string" .Values.fleetUsd -}}{{ .Values.fleetUsd }}{{- else -}}{{ printf "%.2f" (float64 .Values.fleetUsd) }}{{- end -}}
{{- end -}}

{{- define "castor.hasVolume" -}}
{{- if and .Values.persistence.enabled (eq (int .Values.replicas) 1) -}}yes{{- end -}}
{{- end -}}

{{- define "castor.check" -}}
{{- if include "castor.hasPools" . -}}
{{- if eq (toString .Values.fleetUsd) "none" -}}
{{- fail "fleetUsd: the limit on all spending in US dollars is required with pools" -}}
{{- end -}}
{{- if not .Values.publicUrl -}}
{{- fail "publicUrl: the https address of the API that instances reach is required with pools" -}}
{{- end -}}
{{- end -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- if not .Values.store.url -}}
{{- fail "replicas: several controllers need a PostgreSQL store: set store.url" -}}
{{- end -}}
{{- if not .Values.identity.existingSecret -}}
{{- fail "replicas: several controllers share secret.key and client.json: set identity.existingSecret" -}}
{{- end -}}
{{- if not .Values.tls.existingSecret -}}
{{- fail "replicas: several controllers share one certificate: set tls.existingSecret" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "castor.publicUrl" -}}
{{- default (printf "https://%s.%s.svc:%d" (include "castor.name" .) .Release.Namespace (int .Values.service.port)) .Values.publicUrl -}}
{{- end -}}
